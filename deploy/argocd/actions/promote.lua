local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
local digest = obj.status.candidate.digest
obj.metadata.annotations["flagstaff.dev/rollout-promote"] = digest .. "/" .. os.date("!%Y-%m-%dT%XZ")
return obj
