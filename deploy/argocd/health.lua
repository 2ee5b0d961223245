-- The health of every kind of flagstaff.dev and core.openfeature.dev, whose statuses are those of kstatus.
-- An object whose newest spec was not read yet is Progressing, whatever its older conditions say.
local health = { status = "Progressing", message = "Waiting for the controller" }

local function set(status, condition)
  health.status = status
  health.message = condition.reason .. ": " .. condition.message
  return health
end

if obj.spec ~= nil and obj.spec.suspend == true then
  health.status = "Suspended"
  health.message = "Reconciliation is suspended; what was delivered before is served"
  return health
end
local status = obj.status
if status == nil or status.conditions == nil then
  return health
end
local generation = obj.metadata.generation
if status.observedGeneration ~= nil and status.observedGeneration ~= generation then
  return health
end
local conditions = {}
for _, condition in ipairs(status.conditions) do
  if condition.observedGeneration == nil or generation == nil or condition.observedGeneration >= generation then
    conditions[condition.type] = condition
  end
end
-- Whether the candidate of a FlagRollout that needs attention most waits for somebody, a window or a metric.
local function waits()
  if status.phase == "Pending" then
    for _, candidate in ipairs(status.candidates or {}) do
      if candidate.phase == "Pending" and candidate.reason ~= nil then
        return true
      end
    end
  end
  return status.phase == "Paused" or status.phase == "WaitingPromotion"
end

local ready, reconciling, stalled = conditions.Ready, conditions.Reconciling, conditions.Stalled
if stalled ~= nil and stalled.status == "True" then
  return set("Degraded", stalled)
end
if ready == nil then
  return health
end
if obj.kind == "FlagRollout" and waits() then
  return set("Suspended", ready)
end
if reconciling ~= nil and reconciling.status == "True" then
  -- What only waits for another object must not fail a sync wave; what failed and is tried again is Degraded.
  if reconciling.reason == "ProgressingWithRetry" and ready.status == "False" then
    return set("Degraded", ready)
  end
  return set("Progressing", ready)
end
if ready.status == "True" then
  -- It is applied; but not every user gets it.
  if conditions.OverrideActive ~= nil and conditions.OverrideActive.status == "True" then
    return set("Suspended", conditions.OverrideActive)
  end
  if conditions.RolloutActive ~= nil and conditions.RolloutActive.status == "True" then
    return set("Progressing", conditions.RolloutActive)
  end
  if conditions.Propagated ~= nil and conditions.Propagated.status == "False" then
    return set("Progressing", conditions.Propagated)
  end
  return set("Healthy", ready)
end
return set("Degraded", ready)
