-- Gives everybody the promoted definitions of all candidates again.
local os = require("os")
local requests = {}
for _, candidate in ipairs((obj.status or {}).candidates or {}) do
  if candidate.phase ~= "Failed" and candidate.phase ~= "RollingBack" and candidate.phase ~= "Queued" then
    table.insert(requests, candidate.digest .. "/" .. os.date("!%Y-%m-%dT%XZ"))
  end
end
if #requests > 0 then
  if obj.metadata.annotations == nil then
    obj.metadata.annotations = {}
  end
  obj.metadata.annotations["flagstaff.dev/rollout-abort"] = table.concat(requests, ",")
end
return obj
