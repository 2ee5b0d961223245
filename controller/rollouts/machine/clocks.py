"""The clocks of a rollout: all are times in its status, so a restart neither stops nor winds them. Pure."""

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
"""Reasons for which a step waits for people or windows: its deadline does not count that."""


def written(now: datetime) -> str:
    """Return a time as the status has it."""
    return precise_timestamp(now)


def read(text: str | None) -> datetime | None:
    """Return a time of the status; None where it has none."""
    if text is None:
        return None
    try:
        return moment_of(text)
    except InvalidTextError:
        return None


def elapsed(since: str | None, now: datetime) -> float:
    """Return the seconds since a time of the status; 0 where there is none, or the clock was set back."""
    begin = read(since)
    return 0.0 if begin is None else max(0.0, (now - begin).total_seconds())


def is_check_due(spec: FlagRolloutSpec, status: FlagRolloutStatus, since: str | None, now: datetime) -> bool:
    """Whether it is time to ask metrics and webhooks again. `since`: when this could be asked first."""
    last = read(status.last_check_at or since)
    # Either way: a clock that was set back must not stop the checks.
    return last is None or abs((now - last).total_seconds()) >= spec.analysis.interval


def worked(status: FlagRolloutStatus, now: datetime) -> float:
    """Return the seconds that the step took until now, without those in which it waited."""
    waited = (status.waited or 0.0) + elapsed(status.waiting_since, now)
    return elapsed(status.step_started_at, now) - waited


def with_waiting(status: FlagRolloutStatus, now: datetime) -> FlagRolloutStatus:
    """Begin or end to count how long the step waits, by its reason."""
    waits = status.reason in WAITS
    if waits == (status.waiting_since is not None):
        return status
    if waits:
        return status.model_copy(update={"waiting_since": written(now)})
    waited = (status.waited or 0.0) + elapsed(status.waiting_since, now)
    return status.model_copy(update={"waiting_since": None, "waited": round(waited, 3)})


def after(since: str | None, seconds: float | None) -> datetime | None:
    """Return the moment some seconds after a time of the status."""
    begin = read(since)
    return None if begin is None or seconds is None else begin + timedelta(seconds=seconds)
