"""The transitions of a candidate: each returns its whole status and its Events. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts.rollout_status import Outcome
from controller.rollouts.machine.gates import NOT_PROMOTED
from controller.rollouts.machine.reasons import name_of
from controller.rollouts.machine.step_order import share_at, share_text
from controller.runtime.event import Occurrence
from evaluator.flags.rollouts import ROLLOUT_CANDIDATE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from controller.api.rollouts.rollout_status import CandidateStatus
    from controller.rollouts.machine.judgement import Cause
    from controller.rollouts.machine.observation import Tick

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


class Change(NamedTuple):
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


def publish(status: CandidateStatus, index: int, tick: Tick) -> Change:
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
    return Change(after, (_occurrence(status, "RolloutStarted" if first else "StepAdvanced", text),))


def promote(status: CandidateStatus, tick: Tick) -> Change:
    """Give everybody the new definitions."""
    fields = {
        **_NOT_EXPOSED, "phase": "Promoting", "reason": None, "message": None, "share": 100.0,
        "share_text": "100%", "started_at": status.started_at or precise_timestamp(tick.now),
        "step_started_at": precise_timestamp(tick.now), "waited": None, "waiting_since": None, "served": None,
        "last_check_at": None, "verdict": None, "interrupted_by": None, "withheld": (),
    }  # fmt: skip
    return Change(status.model_copy(update=fields))


def skip_steps(status: CandidateStatus, tick: Tick) -> Change:
    """Give everybody the new definitions without the steps that are left, and say why."""
    text = f"{name_of(status)} goes to everybody without steps: {_TEXTS[tick.skips]}"
    return Change(promote(status, tick).status, (_occurrence(status, "StepsSkipped", text),))


def succeed(status: CandidateStatus, tick: Tick) -> Change:
    """Record the candidate as promoted: everybody is served it."""
    text = f"{name_of(status)} is promoted: everybody gets it"
    event = _occurrence(status, "Promoted", text, ends=True)
    return Change(status, (event,), outcome_of(status, "Promoted", None, tick.now))


def take_back(status: CandidateStatus, tick: Tick, reason: str) -> Change:
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
    return Change(status.model_copy(update=back), (event,))


def roll_back(status: CandidateStatus, cause: Cause, tick: Tick) -> Change:
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
    return Change(status.model_copy(update=back), (event,), ended)


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
