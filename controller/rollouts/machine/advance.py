"""The state machine of one candidate: computes its next status from its status and an observation. Pure.

Each written status publishes at most one step of a candidate. A decision needs only the status and a new
observation, so a controller that restarts between two writes continues from the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.meta import precise_timestamp
from controller.rollouts.machine import transitions
from controller.rollouts.machine.clocks import seconds_since, with_exposure, with_waiting, working_seconds
from controller.rollouts.machine.deadlines import apply_deadline
from controller.rollouts.machine.gates import (
    DEMANDED,
    NOT_PROMOTED,
    Gate,
    interruption,
    is_approved,
    is_served,
    start_gate,
    step_gate,
)
from controller.rollouts.machine.judgement import Cause, answers_of, judge, report_answers, with_approval
from controller.rollouts.machine.reasons import FOR_APPROVAL, advice, held_text, message_of
from controller.rollouts.machine.step_order import next_step
from controller.rollouts.machine.transitions import Change
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.rollouts.machine.observation import Tick

_WANTED: Final = frozenset({*FOR_APPROVAL, "Paused", "OutsideWindow", "Frozen", "WaitingForConfirmation"})
"""Reasons that somebody asked for: their Events are no warnings."""
_ADVISED: Final = FOR_APPROVAL | {"OverrideEnded"}
"""Reasons that wait for a person: their Events say what to do."""

_MOST_WITHHELD: Final = 8
_NAME: Final = 1024
"""Most characters of the names of overrides."""
_LISTED: Final = 10
"""Keys of flags that an Event lists."""


def advance(status: CandidateStatus, tick: Tick) -> Change:
    """Return the next status of a candidate, its Events, and how it ended."""
    before = status
    for gate in tick.asked.approvals:
        status = with_approval(status, gate, tick)
    if tick.asked.promote:
        status = with_approval(status, DEMANDED, tick)
    phases: dict[str, Callable[[CandidateStatus, Tick], Change]] = {
        "Queued": _decide_queued,
        "Pending": _decide_pending,
        "Promoting": _decide_promoting,
        "RollingBack": _decide_rolling_back,
        "Failed": _decide_failed,
    }
    change = phases.get(status.phase, _decide_in_step)(status, tick)
    return change._replace(status=with_waiting(before, change.status, tick.now))


def _decide_queued(status: CandidateStatus, tick: Tick) -> Change:
    if (cause := _rollback_cause(tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    return transitions.promote(status, tick) if tick.asked.promote else Change(status)


def _decide_pending(status: CandidateStatus, tick: Tick) -> Change:
    """Decide while nobody gets the new definitions yet."""
    status = _with_interruption(status, tick)
    if (cause := _rollback_cause(tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if tick.asked.promote:
        return transitions.promote(status, tick)
    status, events, cause = judge(status, tick)
    gate = start_gate(status, tick)
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
    elif gate is not None:
        return _hold(status, gate, tick, events)
    elif tick.skips:
        change = transitions.skip_steps(status, tick)
    else:
        change = transitions.publish(status, 0, tick)
    return change._replace(events=(*events, *change.events))


def _decide_in_step(status: CandidateStatus, tick: Tick) -> Change:
    """Decide while a step is served, or about to be."""
    spec, now = tick.spec, tick.now
    status = _with_interruption(status.model_copy(update={"served": tick.served}), tick)
    interrupted = interruption(status, tick) is not None
    status = with_exposure(spec, status, now, served=is_served(tick), interrupted=interrupted)
    if (cause := _rollback_cause(tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if tick.asked.promote:
        return transitions.promote(status, tick)
    status, events, cause = judge(status, tick)
    gate = step_gate(status, tick)
    deadline = spec.progress_deadline
    if cause is None and deadline is not None and working_seconds(status, now) >= deadline:
        text = f"step {status.step_text} took longer than progressDeadline"
        cause = Cause("ProgressDeadlineExceeded", text)
    if cause is None and gate is not None and gate.phase == "RollingBack":
        cause = Cause(gate.reason or "", "the checks of the step have no value, or too few samples")
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
    elif gate is not None:
        return _hold(status, gate, tick, events)
    elif (index := next_step(spec.steps, status)) is None:
        change = transitions.promote(status, tick)
    elif tick.skips:
        change = transitions.skip_steps(status, tick)
    else:
        change = transitions.publish(status, index, tick)
    return change._replace(events=(*events, *change.events))


def _decide_promoting(status: CandidateStatus, tick: Tick) -> Change:
    """Decide while everybody gets the new definitions."""
    status = status.model_copy(update={"served": tick.served})
    if (cause := _rollback_cause(tick)) is not None:
        return transitions.roll_back(status, cause, tick)
    if tick.overrides and not is_approved(status, DEMANDED):
        return transitions.take_back(_with_interruption(status, tick), tick, "OverrideActive")
    reports = report_answers(tick, "post-rollout")
    status, events, cause = judge(status, tick)
    late = seconds_since(status.step_started_at, tick.now) >= tick.spec.propagation.deadline
    if cause is not None:
        change = transitions.roll_back(status, cause, tick)
    elif tick.promotion is not None and is_served(tick) and status.verdict != "Error":
        change = transitions.succeed(status, tick)
        events = (*events, *reports)
    elif late and not is_served(tick) and not tick.missing:
        change = transitions.take_back(status, tick, NOT_PROMOTED)
    else:
        change = Change(
            status.model_copy(update={"reason": "CheckError" if status.verdict == "Error" else None})
        )
    return change._replace(events=(*events, *change.events))


def _decide_rolling_back(status: CandidateStatus, tick: Tick) -> Change:
    """Decide while evaluators return to the promoted definitions."""
    status = status.model_copy(update={"served": tick.served})
    if tick.asked.promote:
        return transitions.promote(status, tick)
    late = seconds_since(status.step_started_at, tick.now) >= tick.spec.propagation.deadline
    return Change(transitions.fail(status) if is_served(tick) or late else status)


def _decide_failed(status: CandidateStatus, tick: Tick) -> Change:
    """Decide after a rollback: the candidate stays rolled back until somebody promotes or retries it."""
    if tick.asked.promote:
        return transitions.promote(status, tick)
    if not any(answers_of(tick, "post-rollout")):
        return Change(status)
    after = status.model_copy(update={"post_rollout_at": precise_timestamp(tick.now)})
    return Change(after, report_answers(tick, "post-rollout"))


def _rollback_cause(tick: Tick) -> Cause | None:
    """Return why a person or a webhook wants the candidate rolled back; None: none does."""
    if tick.asked.abort:
        return Cause("Aborted", "somebody aborted it")
    for name, verdict, _ in answers_of(tick, "rollback"):
        if verdict == "Pass":
            return Cause("RollbackRequested", f"webhook {name} asks for it")
    return None


def _with_interruption(status: CandidateStatus, tick: Tick) -> CandidateStatus:
    """Record the override that hides the definitions, and from whom, until somebody decides what becomes of
    them: its end exposes nobody again.
    """
    if tick.overrides:
        name = ", ".join(tick.overrides)[:_NAME]
        return status.model_copy(update={"interrupted_by": name, "withheld": _withheld(status, tick)})
    if status.interrupted_by and (tick.asked.resume or tick.spec.after_override == "Continue"):
        return status.model_copy(update={"interrupted_by": None, "withheld": ()})
    return status


def _withheld(status: CandidateStatus, tick: Tick) -> tuple[dict[str, Any], ...]:
    if tick.spec.after_override == "Continue":
        return ()
    rules = list(status.withheld)
    rules += [rule for rule in tick.hidden_from if rule not in rules]
    # More audiences than a status lists count as everybody.
    return ({},) if {} in rules or len(rules) > _MOST_WITHHELD else tuple(rules)


def _hold(status: CandidateStatus, gate: Gate, tick: Tick, events: tuple[Occurrence, ...]) -> Change:
    """Stay at the step, with an Event if the reason is new, and at its deadline."""
    phase, reason = gate.phase, gate.reason
    asked = any(hook.name in tick.answers for hook in gate.hooks)
    if gate.hooks and reason != status.reason and not asked:
        # The webhooks are called at once: until they answer, the candidate is not held.
        phase, reason = ("Pending" if phase == "Pending" else "Progressing"), None
    is_new = (
        reason is not None and phase != "Progressing" and (phase, reason) != (status.phase, status.reason)
    )
    same = reason == status.reason
    held = status.model_copy(update={"phase": phase, "reason": reason})
    held = held.model_copy(update={"message": message_of(held, tick)})
    if is_new:
        name = reason if reason in FOR_APPROVAL else "RolloutHeld"
        text = held_text(held)
        if reason in _ADVISED:
            text = f"{text}; {advice(held, tick)}"
        flags = tuple(sorted(held.flags))[:_LISTED]
        return Change(
            held, (*events, Occurrence(name or "", text, warning=reason not in _WANTED, flags=flags))
        )
    if not same:
        return Change(held, events)
    held, more, cause = apply_deadline(held, tick)
    if cause is None:
        return Change(held, (*events, *more))
    change = transitions.roll_back(held, cause, tick)
    return change._replace(events=(*events, *change.events))
