"""What changes by itself, and when: times in rules of flags, and dates of steps of rollouts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from evaluator.flags.known_operators import REFERENCE
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, FlagSet, State
from evaluator.flags.references import Expander, RuleTooLarge
from evaluator.flags.schedules import NOW, ScheduleWindow
from evaluator.host.times import read_clock_time, timestamp
from evaluator.resolving.rule_words import outcome_words, periods, subject_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_SHOWN: Final = 20
"""Entries that people are shown; the others are counted."""
_MOST_OF_FLAG: Final = 20


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """A time at which users get something else."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    name: str
    """The flag's key, or `FlagRollout NAME`."""
    when: str
    """By clocks in the zone in which it was written: `from 2026-12-24 18:00 to 2026-12-27 06:00
    Europe/Berlin`.
    """
    who: str
    """Which users, in words, or which step; empty: everybody."""
    gives: str
    """What they get then."""
    start: str | None = None
    """When it begins, RFC 3339; absent: it is so already."""
    end: str | None = None
    """When it ends; absent: it stays so."""

    @property
    def line(self) -> str:
        """`from … to …: banner, for users whose tier is gold: on`."""
        return f"{self.when}: {', '.join(filter(None, (self.name, self.who)))}: {self.gives}"


def schedule_entries(flags: FlagSet, keys: Iterable[str]) -> Iterator[CalendarEntry]:
    """Yield the times in the rules of some flags."""
    expander = Expander(flags.evaluators)
    # A rule is read whole only where its text may name the time: a set may have 50,000.
    words = (NOW, REFERENCE) if NOW in str(flags.evaluators) else (NOW,)
    for key in keys:
        flag = flags.flags.get(key)
        if flag is None or flag.targeting is ABSENT or flag.state is State.DISABLED:
            continue
        text = str(flag.targeting)
        if not any(word in text for word in words):
            continue
        try:
            rule = expander.expand(flag.targeting)
        except RuleTooLarge:
            continue
        secret = CONFIDENTIAL_KEY in flag.metadata
        for window, condition, outcome in islice(periods(rule), _MOST_OF_FLAG):
            who = "" if secret or condition is None else subject_words(condition)
            gives = "another value, which is secret" if secret else outcome_words(outcome)
            yield CalendarEntry(key, _when(window), who, gives, _moment(window.start), _moment(window.end))


def step_entry(rollout: str, step: str, users: str, date: str) -> CalendarEntry:
    """The date of a step. step: `2/4`; users: `10%`; date: as the FlagRollout has it."""
    moment = read_clock_time(date)
    when = f"from {moment.isoformat(' ', 'minutes')} on"
    gives = f"the new definition for {'an audience' if users == 'audience' else f'{users} of users'}"
    return CalendarEntry(f"FlagRollout {rollout}", when, f"step {step}", gives, timestamp(moment))


def to_come(entries: Iterable[CalendarEntry], now: datetime) -> tuple[CalendarEntry, ...]:
    """Those that begin or end after now, in the order in which they do."""
    text = timestamp(now)
    coming = []
    for entry in entries:
        moments = [moment for moment in (entry.start, entry.end) if moment is not None and moment > text]
        if moments:
            coming.append((moments[0], entry.line, entry))
    return tuple(entry for *_, entry in sorted(coming, key=lambda one: one[:2]))


def calendar_lines(entries: Sequence[CalendarEntry]) -> Iterator[str]:
    """Yield a line for each, MOST_SHOWN at most, and how many more there are."""
    yield from (entry.line for entry in entries[:MOST_SHOWN])
    if len(entries) > MOST_SHOWN:
        yield f"… and {len(entries) - MOST_SHOWN} more"


def _when(window: ScheduleWindow) -> str:
    first, last = (None if end is None else window.clock(end) for end in (window.start, window.end))
    if first is None:
        return f"until {last} {window.zone_name}"
    return f"from {first} to {last} {window.zone_name}" if last else f"from {first} {window.zone_name} on"


def _moment(seconds: int | None) -> str | None:
    return None if seconds is None else timestamp(datetime.fromtimestamp(seconds, UTC))
