if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["flagstaff.dev/rollout-pause"] = "true"
return obj
