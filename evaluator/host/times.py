"""Instants, times of day and durations as texts, read and written in one way by all.

A time without a zone is no time: what users write is refused with it, and what others wrote is ignored. None
is read by the clocks of the machine that reads it.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


def read_time(text: object) -> datetime:
    """The moment that RFC 3339 `text` names, in UTC. Raises ValueError; for a time without a zone too."""
    moment = datetime.fromisoformat(text if isinstance(text, str) else "")
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def parse_time(text: object) -> datetime | None:
    """The moment as `read_time` reads it; None for what it refuses."""
    try:
        return read_time(text)
    except ValueError:
        return None


def end_of_day(text: str) -> datetime:
    """The end in UTC of a day such as `2026-12-31`. Raises ValueError."""
    try:
        return datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def read_clock_time(text: str) -> datetime:
    """What clocks somewhere show, such as `2026-12-24T18:00`; aware where it has an offset. Raises
    ValueError.
    """
    return datetime.fromisoformat(text)


def read_zone(name: str) -> ZoneInfo:
    """The zone of the IANA database, such as `Europe/Berlin`. Raises ValueError."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - few read zones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(f"{name} is no time zone") from error


def parse_http_date(text: str) -> datetime | None:
    """The moment of a date in a header; None for any other text. One without a zone is in UTC: RFC 9110 has
    no other.
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - loads the reader of e-mail

    try:
        moment = parsedate_to_datetime(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def read_clock(text: str) -> time:
    """A time of day such as `08:00`. Raises ValueError."""
    return time.fromisoformat(text)


def timestamp(moment: datetime) -> str:
    """A time, which must be aware, as the API server writes it: `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_timestamp(moment: datetime) -> str:
    """A time with milliseconds: `2026-01-31T12:00:00.250Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def micro_timestamp(moment: datetime) -> str:
    """A time with microseconds, as the API server has it in a Lease: `2026-01-31T12:00:00.250000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


_UNITS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_MOST_CHARACTERS: Final = 64
"""Of digits alone, the pattern tries the rest anew at each of them."""


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration as Go writes it, such as `1m30s` or `0`, without a sign; None for any
    other text.
    """
    if text == "0":
        return 0.0
    parts = _PART.findall(text) if len(text) <= _MOST_CHARACTERS else []
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """Seconds as Go writes them, with two digits below a minute: `0s`, `38ms`, `1.2s`, `4m10s`, `1h30m`."""
    if 0 < seconds < 0.0995:
        return f"{max(1, round(seconds * 1000))}ms"
    if 0 < seconds < 0.995:
        return f"{round(seconds * 100) * 10}ms"
    if seconds < 59.5:
        return f"{seconds:.2g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return "".join(f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if count)


def query_duration(seconds: float) -> str:
    """Whole seconds in one unit, which every query language of metrics reads: `5m`, `90s`."""
    whole = max(1, int(seconds))
    for unit, length in (("h", 3600), ("m", 60)):
        if whole % length == 0:
            return f"{whole // length}{unit}"
    return f"{whole}s"
