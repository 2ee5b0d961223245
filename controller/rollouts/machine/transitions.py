"""The transitions of a rollout: each returns a whole status and its Events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts.rollout_status import Outcome
from controller.rollouts.machine.gates import NOT_PROMOTED
from controller.rollouts.machine.step_order import share_at, share_text
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import FlagRolloutStatus, Revision
    from controller.rollouts.machine.judgement import Cause
    from controller.rollouts.machine.observation import Observation

_HISTORY: Final = 10
_RECENT: Final = 10
_SALT_DIGITS: Final = 8
_LONGEST: Final = 800
"""Most characters of why a rollout ended."""
_NO_STEP: Final[dict[str, Any]] = {
    "step": None, "step_text": None, "share": None, "share_text": None, "audiences": (),
    "step_started_at": None, "propagated_at": None, "waited": None, "waiting_since": None, "served": None,
    "last_check_at": None,
}  # fmt: skip
"""Fields of a rollout without a step."""
_NO_CHECKS: Final[dict[str, Any]] = {"checks": None, "metrics": (), "verdict": None}
_NO_RUN: Final[dict[str, Any]] = {
    **_NO_STEP, **_NO_CHECKS, "candidate": None, "reason": None, "started_at": None, "approvals": (),
    "failed_digest": None, "salt": None,
}  # fmt: skip


class Change(NamedTuple):
    """A new status, and the Events of the change."""

    status: FlagRolloutStatus
    events: tuple[Occurrence, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """The input of one decision beside the status."""

    spec: FlagRolloutSpec
    observation: Observation
    now: datetime


def rest(status: FlagRolloutStatus) -> Change:
    """Return to Idle: Git has nothing to roll out."""
    return Change(status.model_copy(update={**_NO_RUN, "phase": "Idle"}))


def revert(status: FlagRolloutStatus, tick: Tick) -> Change:
    """Git has the promoted definitions again: everybody is served them at once."""
    resting = rest(status).status
    if status.candidate is None:
        return Change(resting)
    text = f"Git has the promoted definitions again in place of {name_of(status.candidate)}"
    if status.phase in {"Failed", "RollingBack"}:
        # The history has its end already.
        return Change(resting, (Occurrence("RolloutReverted", text),))
    ended = _history_with(status, "Reverted", "Git has the promoted definitions again", tick.now)
    history = {"history": ended}
    return Change(resting.model_copy(update=history), (Occurrence("RolloutReverted", text),))


def take_up(status: FlagRolloutStatus, candidate: Revision, tick: Tick) -> Change:
    """Begin with a new candidate; the salt of a rollout that it supersedes stays."""
    events: tuple[Occurrence, ...] = ()
    history = status.history
    before = status.candidate
    if before is not None and status.phase not in {"Failed", "RollingBack"}:
        text = f"{name_of(before)} is superseded by {name_of(candidate)}"
        history = _history_with(status, "Superseded", text, tick.now)
        events = (Occurrence("RolloutSuperseded", text),)
    return Change(_begin(status, candidate, tick).model_copy(update={"history": history}), events)


def try_again(status: FlagRolloutStatus, candidate: Revision, tick: Tick) -> Change:
    """Roll a failed candidate out again."""
    return Change(_begin(status, candidate, tick))


def _begin(status: FlagRolloutStatus, candidate: Revision, tick: Tick) -> FlagRolloutStatus:
    digits = candidate.digest.partition(":")[2][:_SALT_DIGITS]
    fresh = {
        **_NO_RUN,
        "phase": "Pending",
        "candidate": candidate,
        "salt": status.salt or f"{tick.observation.name}/{digits}",
        "started_at": precise_timestamp(tick.now),
        "post_rollout_at": None,
    }
    return status.model_copy(update=fresh)


def publish(status: FlagRolloutStatus, index: int, tick: Tick) -> Change:
    """Begin a step: its users get the candidate once this status is written."""
    steps = tick.spec.steps
    audience = steps[index].audience
    audiences = status.audiences
    if audience is not None and audience not in audiences:
        audiences = (*audiences, audience)
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
        "step_started_at": precise_timestamp(tick.now),
        # Confirmations by webhooks are of the step before.
        "approvals": tuple(approval for approval in status.approvals if "/" not in approval.gate),
    }
    after = status.model_copy(update=step)
    text = f"step {after.step_text} of {name_of(status.candidate)}: {after.share_text} of users"
    reason = "RolloutStarted" if first else "StepAdvanced"
    return Change(after, (_occurrence(status, reason, text),))


def promote(status: FlagRolloutStatus, tick: Tick) -> Change:
    """Give everybody the candidate."""
    fields = {
        "phase": "Promoting", "reason": None, "share": 100.0, "share_text": "100%",
        "step_started_at": precise_timestamp(tick.now), "propagated_at": None, "waited": None,
        "waiting_since": None, "served": None, "last_check_at": None, "verdict": None, "failed_digest": None,
    }  # fmt: skip
    return Change(status.model_copy(update=fields))


def succeed(status: FlagRolloutStatus, tick: Tick) -> Change:
    """Record the candidate as promoted: everybody is served it."""
    observation = tick.observation
    earlier = status.promoted.digest if status.promoted is not None else ""
    recent = [
        digest for digest in status.recent_digests if digest not in {earlier, observation.desired.digest}
    ]
    done = {
        **_NO_RUN,
        "phase": "Succeeded",
        "promoted": observation.desired,
        "recent_digests": tuple(filter(None, (earlier, *recent)))[:_RECENT],
        "history": _history_with(status, "Promoted", None, tick.now),
    }
    text = f"{name_of(status.candidate)} is promoted: everybody gets it"
    return Change(status.model_copy(update=done), (_occurrence(status, "Promoted", text, ends=True),))


def take_back(status: FlagRolloutStatus, tick: Tick) -> Change:
    """Return from a promotion that is not served to the last step."""
    text = (
        f"{name_of(status.candidate)} was not served to everybody in time: "
        f"the rollout is back at {f'step {status.step_text}' if status.step_text else 'its beginning'}"
    )
    if status.step is None:
        back = {**_NO_STEP, "phase": "Pending", "reason": NOT_PROMOTED}
    else:
        share = share_at(tick.spec.steps, status.step)
        back = {
            **_NO_CHECKS, "phase": "Paused", "reason": NOT_PROMOTED, "share": share,
            "share_text": share_text(share, status.audiences), "step_started_at": precise_timestamp(tick.now),
            "served": None, "propagated_at": None,
        }  # fmt: skip
    event = Occurrence("RolloutHeld", text, warning=True)
    return Change(status.model_copy(update=back), (event,))


def roll_back(status: FlagRolloutStatus, cause: Cause, tick: Tick) -> Change:
    """Give everybody the promoted definitions again."""
    text = f"{name_of(status.candidate)} is rolled back: {cause.message[:_LONGEST]}"
    exposed = status.step is not None or status.phase == "Promoting"
    digest = status.candidate.digest if status.candidate is not None else None
    back = {
        **_NO_STEP,
        "phase": "RollingBack" if exposed else "Failed",
        "reason": cause.reason,
        "failed_digest": digest,
        "step_started_at": precise_timestamp(tick.now) if exposed else None,
        "history": _history_with(status, "RolledBack", cause.message[:_LONGEST], tick.now),
    }
    event = _occurrence(status, "RolledBack", text, warning=True)
    return Change(status.model_copy(update=back), (event,))


def fail(status: FlagRolloutStatus) -> Change:
    """End a rollback: the promoted definitions are served again."""
    return Change(status.model_copy(update={**_NO_STEP, "phase": "Failed"}))


def _history_with(
    status: FlagRolloutStatus,
    outcome: Literal["Promoted", "RolledBack", "Superseded", "Reverted"],
    reason: str | None,
    now: datetime,
) -> tuple[Outcome, ...]:
    candidate = status.candidate
    if candidate is None:
        return status.history
    ended = Outcome(
        digest=candidate.digest,
        revision=candidate.revision,
        outcome=outcome,
        reason=reason,
        started_at=status.started_at,
        ended_at=precise_timestamp(now),
    )
    return (ended, *status.history)[:_HISTORY]


def _occurrence(
    status: FlagRolloutStatus, reason: str, text: str, *, warning: bool = False, ends: bool = False
) -> Occurrence:
    flags = status.candidate.flags if status.candidate is not None else ()
    return Occurrence(reason, text, warning=warning, flags=flags, ends=ends)


def name_of(revision: Revision | None) -> str:
    """Return the name of a candidate for people: its commit, or its digest."""
    if revision is None:
        return "the candidate"
    return revision.revision or revision.digest[:19]
