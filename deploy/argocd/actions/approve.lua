local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
local gate = "promotion"
if obj.status.phase ~= "WaitingPromotion" then
  gate = tostring(math.floor(obj.status.step + 1))
end
local what = obj.status.candidate.digest .. "/" .. gate
obj.metadata.annotations["flagstaff.dev/rollout-approve"] = what .. "/" .. os.date("!%Y-%m-%dT%XZ")
return obj
