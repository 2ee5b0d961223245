"""What a person may ask of a FlagRollout: the annotations that each verb sets. Pure.

Each request names the candidate by its digest, so that it never counts for a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts import flagrollout
from controller.api.rollouts.rollout_status import PROMOTION, FlagRolloutStatus
from controller.cli.shared.printing import short

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from controller.api.objects.meta import Resource

_STEPS: Final = frozenset({"Progressing", "Paused", "WaitingPromotion"})
_UNDER_WAY: Final = _STEPS | {"Pending", "Promoting"}
"""Phases in which a person may roll back."""
_PROMOTED_FROM: Final = _STEPS | {"Pending", "Failed"}
"""Phases in which a person may promote."""


class RefusedRequest(Exception):
    """The request would have no effect; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Request:
    """Annotations to be set, and what to say about it."""

    message: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """None removes one. Empty: it is so already."""


def approve(rollout: Resource, now: datetime) -> Request:
    """Let the present step end, or the candidate be promoted after the last one. Raises RefusedRequest."""
    del now
    status = FlagRolloutStatus.of(rollout)
    digest, name = _candidate(rollout, _STEPS, "nothing to approve")
    gate = status.gate
    if any(approval.gate == gate and approval.digest == digest for approval in status.approvals):
        return Request(f"{_gate_text(status)} of {name} is approved already")
    return Request(f"{_gate_text(status)} of {name} approved", {flagrollout.APPROVE: f"{digest}/{gate}"})


def promote(rollout: Resource, now: datetime) -> Request:
    """Give the candidate to everybody, without the steps that are left. Raises RefusedRequest."""
    del now
    digest, name = _candidate(rollout, _PROMOTED_FROM, "nothing to promote")
    return Request(f"{name} is promoted: everybody gets it", {flagrollout.PROMOTE: digest})


def abort(rollout: Resource, now: datetime) -> Request:
    """Give everybody the promoted definitions again. Raises RefusedRequest."""
    del now
    digest, name = _candidate(rollout, _UNDER_WAY, "nothing to roll back")
    message = f"{name} is rolled back: everybody gets the promoted definitions, until retry or another change"
    return Request(message, {flagrollout.ABORT: digest})


def retry(rollout: Resource, now: datetime) -> Request:
    """Roll a candidate out again that failed. Raises RefusedRequest."""
    status = FlagRolloutStatus.of(rollout)
    if status.phase != "Failed":
        raise RefusedRequest(f"nothing to retry: it is {_phase(status)}; only what failed is tried again")
    return Request(f"{_name(status)} is rolled out again", {flagrollout.RETRY: precise_timestamp(now)})


def pause(rollout: Resource, now: datetime) -> Request:
    """Stay at the present step."""
    del now
    if rollout.annotations.get(flagrollout.PAUSE) == "true" or rollout.spec.get("pause") is True:
        return Request("already paused")
    at = FlagRolloutStatus.of(rollout).step_text
    place = f" at step {at}" if at else ""
    return Request(f"paused{place}: checks go on, and roll back", {flagrollout.PAUSE: "true"})


def resume(rollout: Resource, now: datetime) -> Request:
    """Let it advance again. Raises RefusedRequest."""
    del now
    if rollout.spec.get("pause") is True:
        raise RefusedRequest("spec.pause is true; set it to false where the FlagRollout is written")
    if flagrollout.PAUSE not in rollout.annotations:
        return Request("not paused")
    return Request("resumed", {flagrollout.PAUSE: None})


REQUESTS: Final[Mapping[str, Callable[[Resource, datetime], Request]]] = {
    "approve": approve,
    "pause": pause,
    "resume": resume,
    "promote": promote,
    "abort": abort,
    "retry": retry,
}
"""By verb."""


def _candidate(rollout: Resource, phases: Collection[str], nothing: str) -> tuple[str, str]:
    """(digest, name) of the candidate of a rollout in one of these phases."""
    status = FlagRolloutStatus.of(rollout)
    if rollout.suspended:
        raise RefusedRequest("suspended: set spec.suspend to false, or flagstaff resume it")
    if status.candidate is None or status.phase not in phases:
        raise RefusedRequest(f"{nothing}: it is {_phase(status)}")
    return status.candidate.digest, _name(status)


def _phase(status: FlagRolloutStatus) -> str:
    reason = f", {status.reason}" if status.reason else ""
    return f"{status.phase}{reason}" if status.phase else "not reconciled yet"


def _name(status: FlagRolloutStatus) -> str:
    candidate = status.candidate
    return "the candidate" if candidate is None else short(candidate.revision or candidate.digest)


def _gate_text(status: FlagRolloutStatus) -> str:
    return PROMOTION if status.gate == PROMOTION else f"step {status.step_text or status.gate}"
