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
  local annotations = obj.metadata.annotations or {}
  local paused = annotations["flagstaff.dev/rollout-pause"] == "true"
  local waits, running, failed, interrupted, promotable = false, false, false, false, false
  for _, candidate in ipairs((obj.status or {}).candidates or {}) do
    local stopped = candidate.phase == "Failed" or candidate.phase == "RollingBack"
    local began = candidate.phase ~= "Queued"
    waits = waits or candidate.reason == "WaitingForApproval" or candidate.reason == "WaitingForPromotion"
    interrupted = interrupted or candidate.reason == "OverrideEnded"
    failed = failed or candidate.phase == "Failed"
    running = running or (began and not stopped)
    promotable = promotable or (began and candidate.phase ~= "Promoting" and candidate.phase ~= "RollingBack")
  end
  actions.approve = { disabled = suspended or not waits, iconClass = "fa fa-fw fa-check" }
  actions.promote = { disabled = suspended or not promotable, iconClass = "fa fa-fw fa-forward" }
  actions.abort = { disabled = suspended or not running, iconClass = "fa fa-fw fa-undo" }
  actions.retry = { disabled = suspended or not failed, iconClass = "fa fa-fw fa-redo" }
  actions.pause = { disabled = suspended or paused, iconClass = "fa fa-fw fa-pause" }
  actions.resume = { disabled = not suspended and not paused and not interrupted, iconClass = "fa fa-fw fa-play" }
end
return actions
