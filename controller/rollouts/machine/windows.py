"""When a rollout may take a step: the windows and the times of freeze of its spec. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from itertools import product
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from controller.api.rollouts.rollout_steps import Freeze, Window

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_WEEK: Final = 8
"""Days among which each window opens once at least, this day included."""
_FREEZES: Final = 64
"""Most times of freeze in a spec."""


def is_open(windows: Sequence[Window], freeze: Iterable[Freeze], at: datetime) -> bool:
    """Whether a step may be taken at a moment, which is aware."""
    return not is_frozen(freeze, at) and (not windows or any(_holds(window, at) for window in windows))


def is_frozen(freeze: Iterable[Freeze], at: datetime) -> bool:
    """Whether a moment is in one of the times of freeze."""
    return any(begin <= at < end for begin, end in (period.bounds for period in freeze))


def next_opening(windows: Sequence[Window], freeze: Sequence[Freeze], at: datetime) -> datetime | None:
    """Return the first moment from `at` on at which a step may be taken, in UTC; None: none was found."""
    try:
        return _find_opening(windows, freeze, at.astimezone(UTC))
    except OverflowError:
        # A freeze that ends with the calendar.
        return None


def _find_opening(windows: Sequence[Window], freeze: Sequence[Freeze], at: datetime) -> datetime | None:
    for _ in range(_FREEZES + 1):
        if windows and not any(_holds(window, at) for window in windows):
            openings = (moment for window in windows for moment in _openings(window, at))
            at = min((moment for moment in openings if moment > at), default=at)
        ends = [end for begin, end in (period.bounds for period in freeze) if begin <= at < end]
        if not ends:
            return at if is_open(windows, freeze, at) else None
        at = max(ends)
    return None


def _holds(window: Window, at: datetime) -> bool:
    """Whether a window is open by the clocks of its time zone: twice in an hour that they repeat, never in
    one that they skip.
    """
    local = at.astimezone(ZoneInfo(window.time_zone))
    begin, end = time.fromisoformat(window.from_), time.fromisoformat(window.to)
    clock, today = local.time(), _DAYS[local.weekday()]
    if begin < end:
        return today in window.days and begin <= clock < end
    yesterday = _DAYS[local.weekday() - 1]
    return (today in window.days and clock >= begin) or (yesterday in window.days and clock < end)


def _openings(window: Window, at: datetime) -> Iterator[datetime]:
    """Yield moments at which a window opens, in UTC, in no order: all those within a week among them."""
    zone = ZoneInfo(window.time_zone)
    begin = time.fromisoformat(window.from_)
    first = at.astimezone(zone).date() - _DAY
    for days, fold in product(range(_WEEK + 2), (0, 1)):
        local = datetime.combine(first + days * _DAY, begin, zone).replace(fold=fold)
        moment = local.astimezone(UTC)
        if _holds(window, moment):
            yield moment
        if moment.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None) and not fold:
            yield from _after_gap(window, moment)


def _after_gap(window: Window, moment: datetime) -> Iterator[datetime]:
    """Yield when a window opens whose first minutes the clocks skip: at the first minute after the gap."""
    earlier = (moment - minutes * _MINUTE for minutes in range(120, -1, -1))
    yield from (minute for minute in earlier if _holds(window, minute))
