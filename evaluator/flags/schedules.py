"""Replaces `{"between": [from, to, zone]}` in rules by comparisons of `$flagd.timestamp`. Pure.

What comes out is a rule of flagd's own operators, so that every evaluator serves it. The time zone stays in
it as a condition that is always true: whoever explains the rule can say the local time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

from evaluator.flags.known_operators import SCHEDULE, shorten
from evaluator.flags.references import excess, measure
from evaluator.host.times import read_clock_time, read_zone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from evaluator.flags.model import Json

NOW: Final = "$flagd.timestamp"
_TIME: Final = {"var": NOW}
_FORM: Final = '["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]'
_LAST: Final = 2**34
"""In the year 2514: a rule may compare the time with any number, and one beyond is no date."""


@dataclass(frozen=True, slots=True)
class ScheduleWindow:
    """A time in which a condition holds."""

    start: int | None
    """The first second of it, since 1970; None: since ever."""
    end: int | None
    """The first second after it; None: it has no end."""
    zone: str | None = None
    """The time zone in which it was written; None: UTC."""

    def words(self, *, negated: bool = False) -> str:
        """The condition for people in the zone: `is between 2026-12-24 18:00 and 2026-12-27 06:00
        Europe/Berlin`.
        """
        first, last = (None if end is None else self.clock(end) for end in (self.start, self.end))
        zone = self.zone_name
        if first is not None and last is not None:
            return f"is {'not ' * negated}between {first} and {last} {zone}"
        if (last is None) is not negated:
            return f"is not before {first or last} {zone}"
        return f"is before {first or last} {zone}"

    def holds(self, seconds: int) -> bool:
        """Whether the condition holds then."""
        return (self.start is None or self.start <= seconds) and (self.end is None or seconds < self.end)

    def clock(self, seconds: int) -> str:
        """What clocks in the zone show then: `2026-12-24 18:00`."""
        if not 0 <= seconds < _LAST:
            return str(seconds)
        moment = datetime.fromtimestamp(seconds, self._info)
        return f"{moment:%Y-%m-%d %H:%M}{f':{moment:%S}' * (moment.second > 0)}"

    @property
    def zone_name(self) -> str:
        """The zone of its words: UTC where this machine does not know the one in which it was written."""
        return "UTC" if self.zone is None or self._info is UTC else self.zone

    @property
    def _info(self) -> tzinfo:
        try:
            return UTC if self.zone is None else read_zone(self.zone)
        except ValueError:
            # Another machine knew it.
            return UTC


class ScheduleError(ValueError):
    """The arguments of `between` name no time."""


def write_schedules(rule: Json) -> Json:
    """Return the rule with its schedules written out; wrong ones stay, as does a rule beyond the bounds."""
    return _write(rule) if _has_schedule(rule) and not excess(measure(rule)) else rule


def read_schedule(arguments: Json) -> ScheduleWindow:
    """Return the window that `between` with these arguments names. Raises ScheduleError."""
    if not isinstance(arguments, list) or not 2 <= len(arguments) <= 3:
        raise ScheduleError(f"between takes two times and a time zone: {_FORM}, not {shorten(arguments)}")
    first, last, name = (*arguments, None)[:3]
    if first is None and last is None:
        raise ScheduleError("between needs a time: null stands for one of the two ends alone")
    zone = None
    if isinstance(name, str):
        try:
            zone = read_zone(name)
        except ValueError:
            message = f"{shorten(name)} is no known time zone; write one such as UTC or Europe/Berlin"
            raise ScheduleError(message) from None
    elif name is not None:
        raise ScheduleError(f'between takes a time zone such as "Europe/Berlin" last, not {shorten(name)}')
    start, end = (None if text is None else _seconds(text, zone) for text in (first, last))
    if start is not None and end is not None and start >= end:
        message = (
            f"{shorten(last)} is not after {shorten(first)}, so this is never true; write the earlier first"
        )
        raise ScheduleError(message)
    return ScheduleWindow(start, end, name if zone is not None else None)


def _seconds(text: Json, zone: ZoneInfo | None) -> int:
    try:
        moment = read_clock_time(text if isinstance(text, str) else "")
    except ValueError:
        raise ScheduleError(f'{shorten(text)} is no time; write one such as "2026-12-24T18:00"') from None
    if moment.microsecond:
        raise ScheduleError(
            f"{shorten(text)} has a part of a second, and flagd counts whole ones; leave it out"
        )
    try:
        if moment.tzinfo is None:
            moment = _in_zone(moment, zone)
        elif zone is not None and moment.astimezone(zone).utcoffset() != moment.utcoffset():
            offset = _offset(moment.astimezone(zone))
            message = f"{shorten(text)} has an offset that {zone.key} does not have then; it has {offset}"
            raise ScheduleError(message)
        seconds = int(moment.timestamp())
    except OverflowError:
        seconds = 0
    if not 0 < seconds < _LAST:
        raise ScheduleError(f"{shorten(text)} is not between the years 1970 and 2514")
    return seconds


def _in_zone(moment: datetime, zone: ZoneInfo | None) -> datetime:
    """Return the one moment at which clocks in the zone show this. Raises ScheduleError."""
    shown = moment.isoformat(timespec="seconds" if moment.second else "minutes")
    if zone is None:
        message = f'"{shown}" has neither a time zone nor an offset; write the zone last: {_FORM}'
        raise ScheduleError(message)
    earlier, later = (moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if earlier.utcoffset() == later.utcoffset():
        return earlier
    offsets = f"{_offset(earlier)} and {_offset(later)}"
    if earlier.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == moment:
        message = (
            f'clocks in {zone.key} show "{shown}" twice, with the offsets {offsets}; '
            f'write the one that you mean: "{shown}{_offset(earlier)}"'
        )
    else:
        message = (
            f'clocks in {zone.key} never show "{shown}": they are set forward, from one of the offsets '
            f"{offsets} to the other; write a time before or after that"
        )
    raise ScheduleError(message)


def _offset(moment: datetime) -> str:
    offset = moment.utcoffset() or timedelta()
    sign, (hours, rest) = "-" if offset < timedelta() else "+", divmod(abs(offset), timedelta(hours=1))
    return f"{sign}{hours:02}:{rest // timedelta(minutes=1):02}"


def _has_schedule(rule: Json) -> bool:
    pending = [rule]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if SCHEDULE in value:
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += [item for item in value if isinstance(item, (dict, list))]
    return False


def _write(rule: Json) -> Json:
    if isinstance(rule, list):
        return [_write(item) for item in rule]
    if not isinstance(rule, dict):
        return rule
    if rule.keys() == {SCHEDULE}:
        try:
            return _written(read_schedule(rule[SCHEDULE]))
        except ScheduleError:
            return rule
    return {operator: _write(arguments) for operator, arguments in rule.items()}


def _written(window: ScheduleWindow) -> Json:
    conditions: list[Json] = [] if window.zone is None else [{"!!": [window.zone]}]
    if window.start is not None:
        conditions.append({">=": [_TIME, window.start]})
    if window.end is not None:
        conditions.append({"<": [_TIME, window.end]})
    return {"and": conditions}


def window_of(rule: Json) -> ScheduleWindow | None:
    """Return the time in which a written schedule, or a comparison with one time, holds; None for any other
    rule.
    """
    conditions = rule.get("and", [rule]) if isinstance(rule, dict) and len(rule) == 1 else None
    if not isinstance(conditions, list):
        return None
    zone: str | None = None
    bounds: dict[str, int] = {}
    for condition in conditions:
        operator, given = (
            next(iter(condition.items())) if isinstance(condition, dict) and condition else ("", None)
        )
        match operator, given:
            case "!!", [str(name)] if not bounds:
                zone = name
            case ((">=" | "<"), [{"var": "$flagd.timestamp"}, int(seconds)]) if 0 < seconds < _LAST:
                bounds[operator] = seconds
            case _:
                return None
    return ScheduleWindow(bounds.get(">="), bounds.get("<"), zone) if bounds else None


def windows(rule: Json) -> Iterator[ScheduleWindow]:
    """Yield the time of each written schedule in a rule."""
    pending = [rule]
    while pending:
        value = pending.pop()
        window = window_of(value)
        if window is not None:
            yield window
        elif isinstance(value, dict):
            pending += reversed(list(value.values()))
        elif isinstance(value, list):
            pending += [item for item in reversed(value) if isinstance(item, (dict, list))]
