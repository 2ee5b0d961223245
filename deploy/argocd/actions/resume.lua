-- Has the controller work on the object again; of a FlagRollout, also after a pause and after an override.
local os = require("os")
if obj.spec ~= nil then
  obj.spec.suspend = nil
end
if obj.metadata.annotations ~= nil then
  obj.metadata.annotations["flagstaff.dev/rollout-pause"] = nil
end
local requests = {}
for _, candidate in ipairs((obj.status or {}).candidates or {}) do
  if candidate.reason == "OverrideEnded" then
    table.insert(requests, candidate.digest .. "/" .. os.date("!%Y-%m-%dT%XZ"))
  end
end
if #requests > 0 then
  if obj.metadata.annotations == nil then
    obj.metadata.annotations = {}
  end
  obj.metadata.annotations["flagstaff.dev/rollout-resume"] = table.concat(requests, ",")
end
return obj
