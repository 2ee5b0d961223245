"""The state machine of one candidate: computes its next status from its status and an observation. Pure.

Each written status publishes at most one step of a candidate. A decision needs only the status and a new
observation, so a controller that restarts between two writes continues from the last one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from controller.api.rollout_status import CandidateStatus, Outcome
from controller.rollouts.clocks import (
    moment_after,
    next_step,
    present_step,
    seconds_since,
    share_at,
    share_text,
    with_exposure,
    with_waiting,
    working_seconds,
)
from controller.rollouts.gates import (
    DEMANDED,
    FOR_APPROVAL,
    NOT_PROMOTED,
    Gate,
    advice,
    held_text,
    interruption,
    is_approved,
    is_served,
    message_of,
    name_of,
    start_gate,
    step_gate,
)
from controller.rollouts.judgement import RollbackCause, answers_of, judge, report_answers, with_approval
from controller.runtime.event import Occurrence
from evaluator.flags.rollouts import ROLLOUT_CANDIDATE_KEY
from evaluator.host.times import parse_time, precise_timestamp, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from controller.api.flagrollout import FlagRolloutSpec, HoldDeadline
    from controller.rollouts.observation import Tick


_LONGEST: Final = 800
"""Most characters of why a candidate ended."""
_LISTED: Final = 10
"""Keys of flags that an outcome and an Event list."""
_NOT_EXPOSED: Final[dict[str, Any]] = {
    "propagated_at": None, "exposed_seconds": None, "unexposed_since": None, "measured_since": None,
}  # fmt: skip
_NO_STEP: Final[dict[str, Any]] = {
    **_NOT_EXPOSED, "step": None, "step_text": None, "share": None, "share_text": None, "audiences": (),
    "written_audiences": (), "step_started_at": None, "waited": None, "waiting_since": None, "served": None,
    "last_check_at": None,
}  # fmt: skip
"""Fields of a candidate without a step."""
_NO_CHECKS: Final[dict[str, Any]] = {"checks": None, "metrics": (), "verdict": None, "message": None}
_TEXTS: Final = {
    "skipAnalysis": "spec.skipAnalysis is true",
    "rollbackWindow": "these definitions were in force before the present ones, within spec.rollbackWindow",
}


class Transition(NamedTuple):
    """A new status of a candidate, and the Events of the change."""

    status: CandidateStatus
    events: tuple[Occurrence, ...] = ()
    outcome: Outcome | None = None
    """How it ended; None: it did not, or had before."""


def begin_again(status: CandidateStatus) -> CandidateStatus:
    """Return a candidate that was stopped as one that has not started."""
    fresh = {
        **_NO_STEP, **_NO_CHECKS, "phase": "Queued", "reason": None, "started_at": None, "approvals": (),
        "post_rollout_at": None, "interrupted_by": None, "withheld": (), "bucketing": None,
    }  # fmt: skip
    return status.model_copy(update=fresh)


def publish(status: CandidateStatus, index: int, tick: Tick) -> Transition:
    """Begin a step: its users get the new definitions once this status is written."""
    steps = tick.spec.steps
    audiences, written = status.audiences, status.written_audiences
    audience, expanded = steps[index].audience, tick.audiences[index]
    if audience is not None and expanded is not None and audience not in written:
        audiences, written = (*audiences, expanded), (*written, audience)
    share = max(share_at(steps, index), status.share or 0.0)
    first = status.step is None
    step = {
        **_NO_STEP,
        **_NO_CHECKS,
        "phase": "Progressing",
        "reason": None,
        "step": index,
        "step_text": f"{index + 1}/{len(steps)}",
        "share": share,
        "share_text": share_text(share, audiences),
        "audiences": audiences,
        "written_audiences": written,
        "started_at": status.started_at or precise_timestamp(tick.now),
        "step_started_at": precise_timestamp(tick.now),
        "bucketing": tick.bucketing if first else status.bucketing,
        # Confirmations by webhooks are of the step before.
        "approvals": tuple(approval for approval in status.approvals if "/" not in approval.gate),
    }
    after = status.model_copy(update=step)
    text = f"step {after.step_text} of {name_of(status)}: {after.share_text} of users"
    return Transition(after, (_occurrence(status, "RolloutStarted" if first else "StepAdvanced", text),))


def promote(status: CandidateStatus, tick: Tick) -> Transition:
    """Give everybody the new definitions."""
    fields = {
        **_NOT_EXPOSED, "phase": "Promoting", "reason": None, "message": None, "share": 100.0,
        "share_text": "100%", "started_at": status.started_at or precise_timestamp(tick.now),
        "step_started_at": precise_timestamp(tick.now), "waited": None, "waiting_since": None, "served": None,
        "last_check_at": None, "verdict": None, "interrupted_by": None, "withheld": (),
    }  # fmt: skip
    return Transition(status.model_copy(update=fields))


def skip_steps(status: CandidateStatus, tick: Tick) -> Transition:
    """Give everybody the new definitions without the steps that are left, and say why."""
    text = f"{name_of(status)} goes to everybody without steps: {_TEXTS[tick.skips]}"
    return Transition(promote(status, tick).status, (_occurrence(status, "StepsSkipped", text),))


def succeed(status: CandidateStatus, tick: Tick) -> Transition:
    """Record the candidate as promoted: everybody is served it."""
    text = f"{name_of(status)} is promoted: everybody gets it"
    event = _occurrence(status, "Promoted", text, ends=True)
    return Transition(status, (event,), outcome_of(status, "Promoted", None, tick.now))


def undo_promotion(status: CandidateStatus, tick: Tick, reason: str) -> Transition:
    """Return from a promotion that is not served, or that an override hides, to the last step."""
    place = f"step {status.step_text}" if status.step_text else "its beginning"
    why = "was not served to everybody in time" if reason == NOT_PROMOTED else "is hidden by an override"
    text = f"{name_of(status)} {why}: it is back at {place}"
    if status.step is None:
        back = {**_NO_STEP, "phase": "Pending", "reason": reason}
    else:
        share = share_at(tick.spec.steps, status.step)
        back = {
            **_NO_CHECKS, **_NOT_EXPOSED, "phase": "Paused", "reason": reason, "share": share,
            "share_text": share_text(share, status.audiences), "step_started_at": precise_timestamp(tick.now),
            "served": None,
        }  # fmt: skip
    event = Occurrence("RolloutHeld", text, warning=True, flags=_flag_keys(status))
    return Transition(status.model_copy(update=back), (event,))


def roll_back(status: CandidateStatus, cause: RollbackCause, tick: Tick) -> Transition:
    """Give everybody the promoted definitions again."""
    message = cause.message[:_LONGEST]
    text = f"{name_of(status)} is rolled back: {message}"
    exposed = status.step is not None or status.phase == "Promoting"
    back = {
        **_NO_STEP,
        "phase": "RollingBack" if exposed else "Failed",
        "reason": cause.reason,
        "message": message,
        "interrupted_by": None,
        "withheld": (),
        "step_started_at": precise_timestamp(tick.now) if exposed else None,
    }
    event = _occurrence(status, "RolledBack", text, warning=True)
    ended = outcome_of(status, "Aborted" if cause.reason == "Aborted" else "RolledBack", message, tick.now)
    return Transition(status.model_copy(update=back), (event,), ended)


def fail(status: CandidateStatus) -> CandidateStatus:
    """End a rollback: the promoted definitions are served again."""
    return status.model_copy(update={**_NO_STEP, "phase": "Failed"})


def about_candidate(candidate: CandidateStatus, events: Iterable[Occurrence]) -> Iterator[Occurrence]:
    """Yield Events with the digest of the candidate that they are about."""
    return (
        replace(event, metadata={**event.metadata, ROLLOUT_CANDIDATE_KEY: candidate.digest})
        for event in events
    )


def outcome_of(
    status: CandidateStatus,
    outcome: Literal["Promoted", "RolledBack", "Aborted", "Superseded", "Reverted", "Removed"],
    reason: str | None,
    now: datetime,
) -> Outcome:
    """Return the entry of the history for a candidate that ends."""
    return Outcome(
        digest=status.digest,
        revision=status.revision,
        outcome=outcome,
        flags=_flag_keys(status),
        count=len(status.flags),
        share=status.share,
        reason=reason,
        started_at=status.started_at,
        ended_at=precise_timestamp(now),
    )


def _flag_keys(status: CandidateStatus) -> tuple[str, ...]:
    return tuple(sorted(status.flags))[:_LISTED]


def _occurrence(
    status: CandidateStatus, reason: str, text: str, *, warning: bool = False, ends: bool = False
) -> Occurrence:
    return Occurrence(reason, text, warning=warning, flags=_flag_keys(status), ends=ends)


_COUNTING: Final = frozenset(
    {
        "CheckError", "CheckErrors", "CheckFailed", "Inconclusive", "NotServed", "OverrideEnded",
        "PreRolloutChecks", "PromotionNotServed", "WaitingForApproval", "WaitingForConfirmation",
        "WaitingForPromotion",
    }
)  # fmt: skip
"""Reasons for which a candidate waits for people, webhooks or checks. Nobody is late in a window, a pause or
a freeze, which somebody asked for.
"""


def deadline_of(spec: FlagRolloutSpec, status: CandidateStatus) -> tuple[HoldDeadline, datetime] | None:
    """Return the deadline of a candidate that is held, and when it ends; None: it has none."""
    deadline = present_step(spec.steps, status).deadline or spec.deadline
    if deadline is None or status.reason not in _COUNTING:
        return None
    end = moment_after(status.held_since, deadline.after)
    return None if end is None else (deadline, end)


def deadline_moments(spec: FlagRolloutSpec, status: CandidateStatus) -> Iterator[datetime]:
    """Yield when a deadline is announced, and when it ends."""
    if (known := deadline_of(spec, status)) is not None:
        deadline, end = known
        yield end - timedelta(seconds=deadline.announce)
        yield end


def apply_deadline(
    status: CandidateStatus, tick: Tick
) -> tuple[CandidateStatus, tuple[Occurrence, ...], RollbackCause | None]:
    """Announce the deadline of a candidate that is held; at its end say so once, or return the cause for
    which it is rolled back.
    """
    known = deadline_of(tick.spec, status)
    if known is None:
        return status, (), None
    deadline, end = known
    announced = parse_time(status.announced_at)
    rolls_back = deadline.action == "Rollback"
    if tick.now >= end:
        text = f"{held_text(status)}; its deadline ended {timestamp(end)}"
        if rolls_back:
            return status, (), RollbackCause("DeadlineExceeded", text)
        if announced is not None and announced >= end:
            return status, (), None
        message = f"{text}, and it stays held; {advice(status, tick)}"
        event = Occurrence("DeadlineExceeded", message, warning=True)
    elif announced is None and tick.now >= end - timedelta(seconds=deadline.announce):
        then = "it is rolled back then" if rolls_back else "it stays held then"
        message = f"{held_text(status)}; its deadline ends {timestamp(end)}: {then}; {advice(status, tick)}"
        event = Occurrence("DeadlineNear", message, warning=True)
    else:
        return status, (), None
    return status.model_copy(update={"announced_at": precise_timestamp(tick.now)}), (event,), None


_WANTED: Final = frozenset(
    {*FOR_APPROVAL, "Paused", "OutsideWindow", "Frozen", "WaitingForConfirmation", "WaitingForDate"}
)
"""Reasons that somebody asked for: their Events are no warnings."""
_ADVISED: Final = FOR_APPROVAL | {"OverrideEnded"}
"""Reasons that wait for a person: their Events say what to do."""

_MOST_WITHHELD: Final = 8
_NAME: Final = 1024
"""Most characters of the names of overrides."""


def advance(status: CandidateStatus, tick: Tick) -> Transition:
    """Return the next status of a candidate, its Events, and how it ended."""
    before = status
    for gate in tick.asked.approvals:
        status = with_approval(status, gate, tick)
    if tick.asked.promote:
        status = with_approval(status, DEMANDED, tick)
    phases: dict[str, Callable[[CandidateStatus, Tick], Transition]] = {
        "Queued": _decide_queued,
        "Pending": _decide_pending,
        "Promoting": _decide_promoting,
        "RollingBack": _decide_rolling_back,
        "Failed": _decide_failed,
    }
    change = phases.get(status.phase, _decide_in_step)(status, tick)
    return change._replace(status=with_waiting(before, change.status, tick.now))


def _decide_queued(status: CandidateStatus, tick: Tick) -> Transition:
    if (cause := _rollback_cause(tick)) is not None:
        return roll_back(status, cause, tick)
    return promote(status, tick) if tick.asked.promote else Transition(status)


def _decide_pending(status: CandidateStatus, tick: Tick) -> Transition:
    """Decide while nobody gets the new definitions yet."""
    status = _with_interruption(status, tick)
    if (cause := _rollback_cause(tick)) is not None:
        return roll_back(status, cause, tick)
    if tick.asked.promote:
        return promote(status, tick)
    status, events, cause = judge(status, tick)
    gate = start_gate(status, tick)
    if cause is not None:
        change = roll_back(status, cause, tick)
    elif gate is not None:
        return _hold(status, gate, tick, events)
    elif tick.skips:
        change = skip_steps(status, tick)
    else:
        change = publish(status, 0, tick)
    return change._replace(events=(*events, *change.events))


def _decide_in_step(status: CandidateStatus, tick: Tick) -> Transition:
    """Decide while a step is served, or about to be."""
    spec, now = tick.spec, tick.now
    status = _with_interruption(status.model_copy(update={"served": tick.served}), tick)
    interrupted = interruption(status, tick) is not None
    status = with_exposure(spec, status, now, served=is_served(tick), interrupted=interrupted)
    if (cause := _rollback_cause(tick)) is not None:
        return roll_back(status, cause, tick)
    if tick.asked.promote:
        return promote(status, tick)
    status, events, cause = judge(status, tick)
    gate = step_gate(status, tick)
    deadline = spec.progress_deadline
    if cause is None and deadline is not None and working_seconds(status, now) >= deadline:
        text = f"step {status.step_text} took longer than progressDeadline"
        cause = RollbackCause("ProgressDeadlineExceeded", text)
    if cause is None and gate is not None and gate.phase == "RollingBack":
        cause = RollbackCause(gate.reason or "", "the checks of the step have no value, or too few samples")
    if cause is not None:
        change = roll_back(status, cause, tick)
    elif gate is not None:
        return _hold(status, gate, tick, events)
    elif (index := next_step(spec.steps, status)) is None:
        change = promote(status, tick)
    elif tick.skips:
        change = skip_steps(status, tick)
    else:
        change = publish(status, index, tick)
    return change._replace(events=(*events, *change.events))


def _decide_promoting(status: CandidateStatus, tick: Tick) -> Transition:
    """Decide while everybody gets the new definitions."""
    status = status.model_copy(update={"served": tick.served})
    if (cause := _rollback_cause(tick)) is not None:
        return roll_back(status, cause, tick)
    if tick.overrides and not is_approved(status, DEMANDED):
        return undo_promotion(_with_interruption(status, tick), tick, "OverrideActive")
    reports = report_answers(tick, "post-rollout")
    status, events, cause = judge(status, tick)
    late = seconds_since(status.step_started_at, tick.now) >= tick.spec.propagation.deadline
    if cause is not None:
        change = roll_back(status, cause, tick)
    elif tick.promotion is not None and is_served(tick) and status.verdict != "Error":
        change = succeed(status, tick)
        events = (*events, *reports)
    elif late and not is_served(tick) and not tick.missing:
        change = undo_promotion(status, tick, NOT_PROMOTED)
    else:
        change = Transition(
            status.model_copy(update={"reason": "CheckError" if status.verdict == "Error" else None})
        )
    return change._replace(events=(*events, *change.events))


def _decide_rolling_back(status: CandidateStatus, tick: Tick) -> Transition:
    """Decide while evaluators return to the promoted definitions."""
    status = status.model_copy(update={"served": tick.served})
    if tick.asked.promote:
        return promote(status, tick)
    late = seconds_since(status.step_started_at, tick.now) >= tick.spec.propagation.deadline
    return Transition(fail(status) if is_served(tick) or late else status)


def _decide_failed(status: CandidateStatus, tick: Tick) -> Transition:
    """Decide after a rollback: the candidate stays rolled back until somebody promotes or retries it."""
    if tick.asked.promote:
        return promote(status, tick)
    if not any(answers_of(tick, "post-rollout")):
        return Transition(status)
    after = status.model_copy(update={"post_rollout_at": precise_timestamp(tick.now)})
    return Transition(after, report_answers(tick, "post-rollout"))


def _rollback_cause(tick: Tick) -> RollbackCause | None:
    """Return why a person or a webhook wants the candidate rolled back; None: none does."""
    if tick.asked.abort:
        return RollbackCause("Aborted", "somebody aborted it")
    for name, verdict, _ in answers_of(tick, "rollback"):
        if verdict == "Pass":
            return RollbackCause("RollbackRequested", f"webhook {name} asks for it")
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


def _hold(status: CandidateStatus, gate: Gate, tick: Tick, events: tuple[Occurrence, ...]) -> Transition:
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
        return Transition(
            held, (*events, Occurrence(name or "", text, warning=reason not in _WANTED, flags=flags))
        )
    if not same:
        return Transition(held, events)
    held, more, cause = apply_deadline(held, tick)
    if cause is None:
        return Transition(held, (*events, *more))
    change = roll_back(held, cause, tick)
    return change._replace(events=(*events, *change.events))
