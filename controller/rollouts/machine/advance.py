"""The state machine of a rollout: from its status and what is so now to its next status. Pure.

One written status publishes one step; all that a decision needs is in the status or is observed anew, so a
controller that dies between any two writes goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.rollouts.rollout_status import Checks
from controller.rollouts.machine import transitions
from controller.rollouts.machine.annotations import confirmed, requests, retry_token
from controller.rollouts.machine.clocks import elapsed, is_check_due, with_waiting, worked, written
from controller.rollouts.machine.due import Due, due
from controller.rollouts.machine.gates import Gate, is_immediate, is_paused, is_served, start_gate, step_gate
from controller.rollouts.machine.judgement import Cause, answered, judge
from controller.rollouts.machine.observation import Decision
from controller.rollouts.machine.reasons import reason_text
from controller.rollouts.machine.step_order import next_step
from controller.rollouts.machine.timers import seconds_to_next
from controller.rollouts.machine.transitions import Change, Tick
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.rollouts.machine.annotations import Requests
    from controller.rollouts.machine.observation import Observation

_FOR_PEOPLE: Final = frozenset({"WaitingForApproval", "WaitingForPromotion"})
"""Reasons that are Events by themselves; of others the Event is RolloutHeld."""
_WANTED: Final = frozenset({*_FOR_PEOPLE, "Paused", "OutsideWindow", "Frozen", "WaitingForConfirmation"})
"""Reasons that somebody wanted: nothing is wrong."""


def advance(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Decision:
    """Return what becomes of the rollout now. The status may be of any age: `now` alone tells the time."""
    tick = Tick(spec, observation, now)
    known = status.model_copy(update={"promoted": observation.promoted})
    token = retry_token(spec, observation.annotations)
    status_after, events = _decide(known, tick, retry=token not in {"", status.handled_retry or ""})
    after = with_waiting(status_after.model_copy(update={"handled_retry": token or None}), now)
    moved = (after.phase, after.step) != (status.phase, status.step)
    at_once = moved or due(spec, after, observation, now) != Due()
    wait = 0.0 if at_once else seconds_to_next(spec, after, now)
    return Decision(after, events, wait)


def _decide(status: FlagRolloutStatus, tick: Tick, *, retry: bool) -> Change:
    candidate = tick.observation.candidate
    if candidate is None:
        if status.phase in {"Idle", "Succeeded"}:
            return _ended(status, tick)
        return transitions.revert(status, tick)
    if status.candidate is None or status.candidate.digest != candidate.digest:
        return transitions.take_up(status, candidate, tick)
    asked = requests(status, tick.observation, tick.now)
    if status.phase == "Failed":
        change = _failed(asked, tick, retry=retry)
    else:
        phases: dict[str | None, Callable[[Requests, Tick], Change]] = {
            "Pending": _pending,
            "Promoting": _promoting,
            "RollingBack": _rolling_back,
        }
        change = phases.get(status.phase, _in_step)(asked, tick)
    return Change(change.status, (*asked.events, *change.events))


def _pending(asked: Requests, tick: Tick) -> Change:
    """Nobody has the candidate yet."""
    status = asked.status
    if (cause := _called_off(asked, tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if asked.promote:
        return transitions.promote(status, tick)
    confirmed_now = confirmed(tick.spec, status, tick.observation, tick.now)
    status = _asked(confirmed_now, tick, again=confirmed_now is not status)
    status, events, cause = _pre_rollout(status, tick)
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
        return Change(change.status, (*events, *change.events))
    gate = start_gate(tick.spec, status, tick.observation, tick.now)
    if gate is not None:
        return Change(*_held(status, gate, tick, events))
    if is_immediate(tick.spec, status, tick.observation):
        change = transitions.promote(status, tick)
    else:
        change = transitions.publish(status, 0, tick)
    return Change(change.status, (*events, *change.events))


def _pre_rollout(
    status: FlagRolloutStatus, tick: Tick
) -> tuple[FlagRolloutStatus, tuple[Occurrence, ...], Cause | None]:
    """Count the webhooks before the first step that said no."""
    refused = [
        f"webhook {name}: {message}"
        for name, verdict, message in answered(tick.spec, tick.observation, "pre-rollout")
        if verdict != "Pass"
    ]
    if not refused:
        return status, (), None
    checks = Checks(failed=(status.checks or Checks()).failed + 1)
    text = "; ".join(refused)
    event = Occurrence("CheckFailed", text, warning=True)
    cause = Cause("FailureLimit", text) if checks.failed >= tick.spec.analysis.failure_limit else None
    return status.model_copy(update={"checks": checks}), (event,), cause


def _in_step(asked: Requests, tick: Tick) -> Change:
    """A step is served, or about to be."""
    spec, now = tick.spec, tick.now
    status = _with_served(asked.status, tick)
    if (cause := _called_off(asked, tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if asked.promote:
        return transitions.promote(status, tick)
    status = _asked(confirmed(spec, status, tick.observation, now), tick)
    status, events, cause = judge(spec, status, tick.observation, now)
    if cause is None and spec.progress_deadline is not None and worked(status, now) >= spec.progress_deadline:
        text = f"step {status.step_text} took longer than progressDeadline"
        cause = Cause("ProgressDeadlineExceeded", text)
    gate = step_gate(spec, status, tick.observation, now)
    if cause is None and gate is not None and gate.phase == "RollingBack":
        cause = Cause(gate.reason or "", "the checks of the step have no value, or too few samples")
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
    elif is_immediate(spec, status, tick.observation) and not is_paused(spec, tick.observation.annotations):
        change = transitions.promote(status, tick)
    elif gate is not None:
        return Change(*_held(status, gate, tick, events))
    else:
        index = next_step(spec.steps, status.share or 0.0, status.audiences)
        done = index is None
        change = transitions.promote(status, tick) if done else transitions.publish(status, index or 0, tick)
    return Change(change.status, (*events, *change.events))


def _promoting(asked: Requests, tick: Tick) -> Change:
    """Everybody gets the candidate."""
    status = asked.status.model_copy(update={"served": tick.observation.served})
    if (cause := _called_off(asked, tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if is_served(tick.spec, tick.observation):
        return transitions.succeed(status, tick)
    if elapsed(status.step_started_at, tick.now) >= tick.spec.propagation.deadline:
        return transitions.take_back(status, tick)
    return Change(_asked(status, tick))


def _rolling_back(asked: Requests, tick: Tick) -> Change:
    """Everybody gets the promoted definitions again, as soon as evaluators know."""
    status = asked.status.model_copy(update={"served": tick.observation.served})
    late = elapsed(status.step_started_at, tick.now) >= tick.spec.propagation.deadline
    if is_served(tick.spec, tick.observation) or late:
        return _ended(transitions.fail(status).status, tick)
    return Change(status)


def _failed(asked: Requests, tick: Tick, *, retry: bool) -> Change:
    """The candidate stays rolled back until somebody wants it again."""
    candidate = tick.observation.candidate
    if asked.promote:
        return transitions.promote(asked.status, tick)
    if retry and candidate is not None:
        return transitions.try_again(asked.status, candidate, tick)
    return _ended(asked.status, tick)


def _ended(status: FlagRolloutStatus, tick: Tick) -> Change:
    """Note that the webhooks behind a rollout were asked; nothing depends on what they say."""
    if any(True for _ in answered(tick.spec, tick.observation, "post-rollout")):
        status = status.model_copy(update={"post_rollout_at": written(tick.now)})
    return Change(status)


def _called_off(asked: Requests, tick: Tick) -> Cause | None:
    """Return why somebody wants the candidate rolled back; None: nobody does."""
    if asked.abort:
        return Cause("Aborted", "somebody aborted it")
    for name, verdict, _ in answered(tick.spec, tick.observation, "rollback"):
        if verdict == "Pass":
            return Cause("RollbackRequested", f"webhook {name} asks for it")
    return None


def _with_served(status: FlagRolloutStatus, tick: Tick) -> FlagRolloutStatus:
    """Start the clock of the step once enough evaluators serve it; nothing stops it later."""
    status = status.model_copy(update={"served": tick.observation.served})
    if status.propagated_at is not None or not is_served(tick.spec, tick.observation):
        return status
    return status.model_copy(
        update={"propagated_at": written(tick.now), "last_check_at": None, "reason": None}
    )


def _asked(status: FlagRolloutStatus, tick: Tick, *, again: bool = False) -> FlagRolloutStatus:
    """Note when webhooks were asked. `again`: others can be asked at once."""
    since = status.propagated_at or status.step_started_at
    if not tick.observation.answers or not is_check_due(tick.spec, status, since, tick.now):
        return status
    return status.model_copy(update={"last_check_at": None if again else written(tick.now)})


def _held(
    status: FlagRolloutStatus, gate: Gate, tick: Tick, events: tuple[Occurrence, ...]
) -> tuple[FlagRolloutStatus, tuple[Occurrence, ...]]:
    """Stay, and tell why where that is new."""
    phase, reason = gate.phase, gate.reason
    if gate.hooks and reason != status.reason and not _answered(gate, tick):
        # They are asked at once: until they answer, nothing is held.
        phase, reason = ("Pending" if phase == "Pending" else "Progressing"), None
    held = status.model_copy(update={"phase": phase, "reason": reason})
    if reason in {None, status.reason} or phase == "Progressing":
        return held, events
    name = reason if reason in _FOR_PEOPLE else "RolloutHeld"
    text = reason_text(held, tick.observation.misfit)
    return held, (*events, Occurrence(name or "", text, warning=reason not in _WANTED))


def _answered(gate: Gate, tick: Tick) -> bool:
    return any(hook.name in tick.observation.answers for hook in gate.hooks)
