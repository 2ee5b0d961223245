"""The state machine of a rollout: computes its next status from its status and an observation. Pure.

Each written status publishes at most one step. A decision needs only the status and a new observation, so a
controller that restarts between two writes continues from the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts.rollout_status import Checks
from controller.rollouts.machine import transitions
from controller.rollouts.machine.annotations import requests, retry_token, with_confirmations
from controller.rollouts.machine.clocks import is_check_due, seconds_since, with_waiting, working_seconds
from controller.rollouts.machine.due import Due, due
from controller.rollouts.machine.gates import Gate, is_immediate, is_paused, is_served, start_gate, step_gate
from controller.rollouts.machine.judgement import Cause, answers_of, judge
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
"""Reasons that are also the reason of their Event; the Event of any other is RolloutHeld."""
_WANTED: Final = frozenset({*_FOR_PEOPLE, "Paused", "OutsideWindow", "Frozen", "WaitingForConfirmation"})
"""Reasons that somebody asked for: their Events are no warnings."""


def advance(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Decision:
    """Return the next status of the rollout, its Events, and when to decide again."""
    tick = Tick(spec, observation, now)
    known = status.model_copy(update={"promoted": observation.promoted})
    token = retry_token(spec, observation.annotations)
    status_after, events = _decide(known, tick, retry=token not in {"", status.handled_retry or ""})
    # A retry while evaluators still return is one of the failed rollout.
    handled = status.handled_retry if status.phase == "RollingBack" else token or None
    after = with_waiting(status_after.model_copy(update={"handled_retry": handled}), now)
    # The number alone is not enough: steps may have been edited.
    step_changed = (after.phase, after.step, after.step_started_at) != (
        status.phase, status.step, status.step_started_at,
    )  # fmt: skip
    at_once = step_changed or due(spec, after, observation, now) != Due()
    wait = 0.0 if at_once else seconds_to_next(spec, after, now)
    return Decision(after, events, wait)


def _decide(status: FlagRolloutStatus, tick: Tick, *, retry: bool) -> Change:
    candidate = tick.observation.candidate
    if candidate is None:
        if status.phase in {"Idle", "Succeeded"}:
            return _note_post_rollout(status, tick)
        return transitions.revert(status, tick)
    if status.candidate is None or status.candidate.digest != candidate.digest:
        return transitions.take_up(status, candidate, tick)
    requested = requests(status, tick.observation, tick.now)
    if status.phase == "Failed":
        change = _decide_failed(requested, tick, retry=retry)
    else:
        phases: dict[str | None, Callable[[Requests, Tick], Change]] = {
            "Pending": _decide_pending,
            "Promoting": _decide_promoting,
            "RollingBack": _decide_rolling_back,
        }
        change = phases.get(status.phase, _decide_in_step)(requested, tick)
    return Change(change.status, (*requested.events, *change.events))


def _decide_pending(requested: Requests, tick: Tick) -> Change:
    """Decide while nobody gets the candidate yet."""
    status = requested.status
    if (cause := _rollback_cause(requested, tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if requested.promote:
        return transitions.promote(status, tick)
    with_new = with_confirmations(tick.spec, status, tick.observation, tick.now)
    status = _note_webhook_calls(with_new, tick, again=with_new is not status)
    status, events, cause = _pre_rollout(status, tick)
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
        return Change(change.status, (*events, *change.events))
    gate = start_gate(tick.spec, status, tick.observation, tick.now)
    if gate is not None:
        return Change(*_hold(status, gate, tick, events))
    if is_immediate(tick.spec, status, tick.observation.desired.digest):
        change = transitions.promote(status, tick)
    else:
        change = transitions.publish(status, 0, tick)
    return Change(change.status, (*events, *change.events))


def _pre_rollout(
    status: FlagRolloutStatus, tick: Tick
) -> tuple[FlagRolloutStatus, tuple[Occurrence, ...], Cause | None]:
    """Count a failed check if a webhook before the first step did not confirm."""
    refused = [
        f"webhook {name}: {message}"
        for name, verdict, message in answers_of(tick.spec, tick.observation, "pre-rollout")
        if verdict != "Pass"
    ]
    if not refused:
        return status, (), None
    checks = Checks(failed=(status.checks or Checks()).failed + 1)
    text = "; ".join(refused)
    event = Occurrence("CheckFailed", text, warning=True)
    cause = Cause("FailureLimit", text) if checks.failed >= tick.spec.analysis.failure_limit else None
    return status.model_copy(update={"checks": checks}), (event,), cause


def _decide_in_step(requested: Requests, tick: Tick) -> Change:
    """Decide while a step is served, or about to be."""
    spec, now = tick.spec, tick.now
    status = _with_served(requested.status, tick)
    if (cause := _rollback_cause(requested, tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if requested.promote:
        return transitions.promote(status, tick)
    status = _note_webhook_calls(with_confirmations(spec, status, tick.observation, now), tick)
    status, events, cause = judge(spec, status, tick.observation, now)
    deadline = spec.progress_deadline
    if cause is None and deadline is not None and working_seconds(status, now) >= deadline:
        text = f"step {status.step_text} took longer than progressDeadline"
        cause = Cause("ProgressDeadlineExceeded", text)
    gate = step_gate(spec, status, tick.observation, now)
    if cause is None and gate is not None and gate.phase == "RollingBack":
        cause = Cause(gate.reason or "", "the checks of the step have no value, or too few samples")
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
    elif is_immediate(spec, status, tick.observation.desired.digest) and not is_paused(
        spec, tick.observation.annotations
    ):
        change = transitions.promote(status, tick)
    elif gate is not None:
        return Change(*_hold(status, gate, tick, events))
    else:
        index = next_step(spec.steps, status.share or 0.0, status.audiences)
        done = index is None
        change = transitions.promote(status, tick) if done else transitions.publish(status, index or 0, tick)
    return Change(change.status, (*events, *change.events))


def _decide_promoting(requested: Requests, tick: Tick) -> Change:
    """Decide while everybody gets the candidate."""
    status = requested.status.model_copy(update={"served": tick.observation.served})
    if (cause := _rollback_cause(requested, tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if is_served(tick.spec, tick.observation):
        return transitions.succeed(status, tick)
    if seconds_since(status.step_started_at, tick.now) >= tick.spec.propagation.deadline:
        return transitions.take_back(status, tick)
    return Change(_note_webhook_calls(status, tick))


def _decide_rolling_back(requested: Requests, tick: Tick) -> Change:
    """Decide while evaluators return to the promoted definitions."""
    status = requested.status.model_copy(update={"served": tick.observation.served})
    if requested.promote:
        return transitions.promote(status, tick)
    late = seconds_since(status.step_started_at, tick.now) >= tick.spec.propagation.deadline
    if is_served(tick.spec, tick.observation) or late:
        return _note_post_rollout(transitions.fail(status).status, tick)
    return Change(status)


def _decide_failed(requested: Requests, tick: Tick, *, retry: bool) -> Change:
    """Decide after a rollback: the candidate stays rolled back until somebody promotes or retries it."""
    candidate = tick.observation.candidate
    if requested.promote:
        return transitions.promote(requested.status, tick)
    if retry and candidate is not None:
        return transitions.try_again(requested.status, candidate, tick)
    return _note_post_rollout(requested.status, tick)


def _note_post_rollout(status: FlagRolloutStatus, tick: Tick) -> Change:
    """Record that the webhooks after a rollout were called; nothing depends on their answers."""
    if any(True for _ in answers_of(tick.spec, tick.observation, "post-rollout")):
        status = status.model_copy(update={"post_rollout_at": precise_timestamp(tick.now)})
    return Change(status)


def _rollback_cause(requested: Requests, tick: Tick) -> Cause | None:
    """Return why a person or a webhook wants the candidate rolled back; None: none does."""
    if requested.abort:
        return Cause("Aborted", "somebody aborted it")
    for name, verdict, _ in answers_of(tick.spec, tick.observation, "rollback"):
        if verdict == "Pass":
            return Cause("RollbackRequested", f"webhook {name} asks for it")
    return None


def _with_served(status: FlagRolloutStatus, tick: Tick) -> FlagRolloutStatus:
    """Record when enough evaluators serve the step for the first time."""
    status = status.model_copy(update={"served": tick.observation.served})
    if status.propagated_at is not None or not is_served(tick.spec, tick.observation):
        return status
    return status.model_copy(
        update={"propagated_at": precise_timestamp(tick.now), "last_check_at": None, "reason": None}
    )


def _note_webhook_calls(status: FlagRolloutStatus, tick: Tick, *, again: bool = False) -> FlagRolloutStatus:
    """Record when webhooks were called. `again`: others may be called at once."""
    since = status.propagated_at or status.step_started_at
    if not tick.observation.answers or not is_check_due(tick.spec, status, since, tick.now):
        return status
    return status.model_copy(update={"last_check_at": None if again else precise_timestamp(tick.now)})


def _hold(
    status: FlagRolloutStatus, gate: Gate, tick: Tick, events: tuple[Occurrence, ...]
) -> tuple[FlagRolloutStatus, tuple[Occurrence, ...]]:
    """Stay at the step, with an Event if the reason is new."""
    phase, reason = gate.phase, gate.reason
    if gate.hooks and reason != status.reason and not _has_answer(gate, tick):
        # The webhooks are called at once: until they answer, the rollout is not held.
        phase, reason = ("Pending" if phase == "Pending" else "Progressing"), None
    held = status.model_copy(update={"phase": phase, "reason": reason})
    if reason in {None, status.reason} or phase == "Progressing":
        return held, events
    name = reason if reason in _FOR_PEOPLE else "RolloutHeld"
    text = reason_text(held, tick.observation.misfit)
    return held, (*events, Occurrence(name or "", text, warning=reason not in _WANTED))


def _has_answer(gate: Gate, tick: Tick) -> bool:
    return any(hook.name in tick.observation.answers for hook in gate.hooks)
