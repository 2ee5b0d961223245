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
local function waits(phase, reason)
  return phase == "Paused" or phase == "WaitingPromotion" or (phase == "Pending" and reason ~= nil)
end

local ready, reconciling, stalled = conditions.Ready, conditions.Reconciling, conditions.Stalled
if stalled ~= nil and stalled.status == "True" then
  return set("Degraded", stalled)
end
if ready == nil then
  return health
end
if obj.kind == "FlagRollout" and waits(status.phase, status.reason) then
  -- It goes on once somebody, a window or a metric lets it.
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
  return set("Healthy", ready)
end
return set("Degraded", ready)
