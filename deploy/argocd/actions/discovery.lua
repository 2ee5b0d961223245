local suspended = obj.spec ~= nil and obj.spec.suspend == true
local actions = { reconcile = { disabled = suspended, iconClass = "fa fa-fw fa-sync" } }
local pausable = {
  EvaluatorUpgrade = true, FlagAlert = true, FlagProvider = true, FlagReceiver = true, FlagRollout = true,
  FlagSet = true, FlagSource = true
}
if pausable[obj.kind] then
  actions.suspend = { disabled = suspended, iconClass = "fa fa-fw fa-pause" }
  actions.resume = { disabled = not suspended, iconClass = "fa fa-fw fa-play" }
end
if obj.kind == "FlagRollout" then
  local status = obj.status or {}
  local annotations = obj.metadata.annotations or {}
  local paused = annotations["flagstaff.dev/rollout-pause"] == "true"
  local waits = status.reason == "WaitingForApproval" or status.reason == "WaitingForPromotion"
  local failed = status.phase == "Failed" or status.phase == "RollingBack"
  local idle = suspended or status.candidate == nil
  actions.approve = { disabled = idle or not waits, iconClass = "fa fa-fw fa-check" }
  actions.promote = { disabled = idle or status.phase == "Promoting", iconClass = "fa fa-fw fa-forward" }
  actions.abort = { disabled = idle or failed, iconClass = "fa fa-fw fa-undo" }
  actions.retry = { disabled = idle or status.phase ~= "Failed", iconClass = "fa fa-fw fa-redo" }
  actions.pause = { disabled = suspended or paused, iconClass = "fa fa-fw fa-pause" }
  actions.resume = { disabled = not suspended and not paused, iconClass = "fa fa-fw fa-play" }
end
return actions
