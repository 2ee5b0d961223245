"""The durations of a rollout. All start from times in its status, so a restart does not change them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.api.flagoverride import moment_of
from controller.api.objects.meta import precise_timestamp
from controller.api.parsing import InvalidTextError

if TYPE_CHECKING:
    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import FlagRolloutStatus

WAITS: Final = frozenset(
    {
        "Paused",
        "OutsideWindow",
        "Frozen",
        "WaitingForApproval",
        "WaitingForConfirmation",
        "WaitingForPromotion",
    }
)
"""Reasons for which a step waits for people or windows; progressDeadline does not count that time."""


def parse_time(text: str | None) -> datetime | None:
    """Return a time of the status; None where it has none."""
    if text is None:
        return None
    try:
        return moment_of(text)
    except InvalidTextError:
        return None


def seconds_since(since: str | None, now: datetime) -> float:
    """Return the seconds since a time of the status; 0 where there is none, or the clock was set back."""
    begin = parse_time(since)
    return 0.0 if begin is None else max(0.0, (now - begin).total_seconds())


def is_check_due(spec: FlagRolloutSpec, status: FlagRolloutStatus, since: str | None, now: datetime) -> bool:
    """Whether metrics and webhooks are due again. `since`: when they could be called first."""
    last = parse_time(status.last_check_at or since)
    # The absolute value: a clock that was set back must not stop the checks.
    return last is None or abs((now - last).total_seconds()) >= spec.analysis.interval


def working_seconds(status: FlagRolloutStatus, now: datetime) -> float:
    """Return the seconds that the step took until now, without those in which it waited."""
    waited = (status.waited or 0.0) + seconds_since(status.waiting_since, now)
    return seconds_since(status.step_started_at, now) - waited


def with_waiting(status: FlagRolloutStatus, now: datetime) -> FlagRolloutStatus:
    """Start or stop counting the time that the step waits, by its reason."""
    waits = status.reason in WAITS
    if waits == (status.waiting_since is not None):
        return status
    if waits:
        return status.model_copy(update={"waiting_since": precise_timestamp(now)})
    waited = (status.waited or 0.0) + seconds_since(status.waiting_since, now)
    return status.model_copy(update={"waiting_since": None, "waited": round(waited, 3)})


def moment_after(since: str | None, seconds: float | None) -> datetime | None:
    """Return the moment some seconds after a time of the status."""
    begin = parse_time(since)
    return None if begin is None or seconds is None else begin + timedelta(seconds=seconds)
