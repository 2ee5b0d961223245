-- Lets end what the candidates that wait for an approval are at; the others go on as before.
local os = require("os")
local requests = {}
for _, candidate in ipairs((obj.status or {}).candidates or {}) do
  if candidate.reason == "WaitingForApproval" or candidate.reason == "WaitingForPromotion" then
    local gate = "promotion"
    if candidate.phase ~= "WaitingPromotion" and candidate.step ~= nil then
      gate = tostring(math.floor(candidate.step + 1))
    end
    table.insert(requests, candidate.digest .. "/" .. gate .. "/" .. os.date("!%Y-%m-%dT%XZ"))
  end
end
if #requests > 0 then
  if obj.metadata.annotations == nil then
    obj.metadata.annotations = {}
  end
  obj.metadata.annotations["flagstaff.dev/rollout-approve"] = table.concat(requests, ",")
end
return obj
