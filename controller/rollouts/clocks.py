"""The steps of a candidate, and its durations, which start from times in its status. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evaluator.host.times import parse_time, precise_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.flagrollout import FlagRolloutSpec, Step
    from controller.api.rollout_status import CandidateStatus


def next_step(steps: Sequence[Step], status: CandidateStatus) -> int | None:
    """Return the index of the first step that adds users to those of a candidate; None: none does. So a
    rollout whose steps are edited continues with the first step that adds users, and takes nobody back.
    """
    for index, step in enumerate(steps):
        if step.share is not None and step.share > (status.share or 0.0):
            return index
        if step.audience is not None and step.audience not in status.written_audiences:
            return index
    return None


def present_step(steps: Sequence[Step], status: CandidateStatus) -> Step:
    """Return the step that is served, as the spec has it now: the last one before the next."""
    index = next_step(steps, status)
    return steps[-1] if index is None else steps[max(index - 1, 0)]


def date_of_next(steps: Sequence[Step], status: CandidateStatus) -> str | None:
    """Return the time before which the next step does not begin, as the spec has it; None: it has none."""
    index = next_step(steps, status)
    return None if index is None else steps[index].at


def share_at(steps: Sequence[Step], index: int) -> float:
    """Return the percentage of users who get the new definition in a step; audiences do not change it."""
    return max((step.share for step in steps[: index + 1] if step.share is not None), default=0.0)


def share_text(share: float, audiences: Sequence[dict[str, Any]]) -> str:
    """Return in words which users get the new definition."""
    parts = ["audience"] * bool(audiences) + [f"{share:g}%"] * bool(share)
    return " + ".join(parts) or "0%"


INTERRUPTED: Final = frozenset({"OverrideActive", "FlagAbsent", "FlagDisabled", "Suspended"})
"""Reasons for which nobody is exposed, or nothing is to go on: the clock of the step stands."""
WAITS: Final = INTERRUPTED | {
    "Paused",
    "OutsideWindow",
    "Frozen",
    "WaitingForApproval",
    "WaitingForConfirmation",
    "WaitingForDate",
    "WaitingForPromotion",
    "OverrideEnded",
    "NotServed",
}
"""Reasons for which a step waits for people, windows or evaluators; progressDeadline does not count that
time.
"""


def seconds_since(since: str | None, now: datetime) -> float:
    """Return the seconds since a time of the status; 0 where there is none, or the clock was set back."""
    begin = parse_time(since)
    return 0.0 if begin is None else max(0.0, (now - begin).total_seconds())


def is_check_due(spec: FlagRolloutSpec, status: CandidateStatus, since: str | None, now: datetime) -> bool:
    """Whether metrics and webhooks are due again. `since`: when they could be called first."""
    last = parse_time(status.last_check_at or since)
    # The absolute value: a clock that was set back must not stop the checks.
    return last is None or abs((now - last).total_seconds()) >= spec.analysis.interval


def exposed_seconds(status: CandidateStatus, now: datetime) -> float:
    """Return the seconds for which users were exposed to the step until now, without interruptions."""
    return (status.exposed_seconds or 0.0) + seconds_since(status.propagated_at, now)


def with_exposure(
    spec: FlagRolloutSpec, status: CandidateStatus, now: datetime, *, served: bool, interrupted: bool
) -> CandidateStatus:
    """Start or stop the clock of the step. `interrupted`: somebody hides the definitions, or stops them.

    Checks begin anew after an interruption, and after a time longer than their interval in which too few
    evaluators served the step: each commit to the set has that for a moment.
    """
    update: dict[str, Any] = {}
    if served and not interrupted:
        if status.propagated_at is None:
            update = {"propagated_at": precise_timestamp(now), "unexposed_since": None}
            gap = seconds_since(status.unexposed_since, now)
            if status.measured_since is None or gap >= spec.analysis.interval:
                update |= {"measured_since": precise_timestamp(now), "last_check_at": None, "verdict": None}
    elif status.propagated_at is not None:
        update = {
            "exposed_seconds": round(exposed_seconds(status, now), 3),
            "propagated_at": None,
            "unexposed_since": precise_timestamp(now),
        }
    if interrupted:
        update["measured_since"] = None
    return status.model_copy(update=update) if update else status


def working_seconds(status: CandidateStatus, now: datetime) -> float:
    """Return the seconds that the step took until now, without those in which it waited."""
    waited = (status.waited or 0.0) + seconds_since(status.waiting_since, now)
    return seconds_since(status.step_started_at, now) - waited


def with_waiting(before: CandidateStatus, status: CandidateStatus, now: datetime) -> CandidateStatus:
    """Start or stop counting the time that the step waits, and since when it is held, by its reason."""
    update: dict[str, Any] = {}
    if status.reason is None:
        update = {"held_since": None, "announced_at": None}
    elif status.reason != before.reason or status.held_since is None:
        update = {"held_since": precise_timestamp(now), "announced_at": None}
    waits = status.reason in WAITS
    if waits and status.waiting_since is None:
        update["waiting_since"] = precise_timestamp(now)
    elif not waits and status.waiting_since is not None:
        waited = (status.waited or 0.0) + seconds_since(status.waiting_since, now)
        update |= {"waiting_since": None, "waited": round(waited, 3)}
    return status.model_copy(update=update)


def moment_after(since: str | None, seconds: float | None) -> datetime | None:
    """Return the moment some seconds after a time of the status."""
    begin = parse_time(since)
    return None if begin is None or seconds is None else begin + timedelta(seconds=seconds)
