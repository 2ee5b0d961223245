if obj.spec ~= nil then
  obj.spec.suspend = nil
end
if obj.metadata.annotations ~= nil then
  obj.metadata.annotations["flagstaff.dev/rollout-pause"] = nil
end
return obj
