local suspended = obj.spec ~= nil and obj.spec.suspend == true
local actions = { reconcile = { disabled = suspended, iconClass = "fa fa-fw fa-sync" } }
local pausable = {
  EvaluatorUpgrade = true, FlagAlert = true, FlagProvider = true, FlagReceiver = true, FlagSet = true, FlagSource = true
}
if pausable[obj.kind] then
  actions.suspend = { disabled = suspended, iconClass = "fa fa-fw fa-pause" }
  actions.resume = { disabled = not suspended, iconClass = "fa fa-fw fa-play" }
end
return actions
