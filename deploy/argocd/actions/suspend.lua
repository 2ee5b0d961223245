if obj.spec == nil then
  obj.spec = {}
end
obj.spec.suspend = true
return obj
