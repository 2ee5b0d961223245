local os = require("os")
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["flagstaff.dev/rollout-retry"] = os.date("!%Y-%m-%dT%XZ")
return obj
