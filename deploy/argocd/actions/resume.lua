if obj.spec ~= nil then
  obj.spec.suspend = nil
end
return obj
