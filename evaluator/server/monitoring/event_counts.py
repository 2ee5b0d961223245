"""Counts events of users by the arm of each flag in a rollout. Labels come from served flags and from names
of events; the number of both is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.rollouts import Arm
from evaluator.server.monitoring.families import Histograms, counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

MOST_EVENTS: Final = 50
"""Most different names of events."""
MOST_SERIES: Final = 5_000
"""Most series of events."""

_EVENTS: Final = ("feature_flag_events", "Events of users, by the arm of a flag in a rollout.")
_VALUES: Final = ("feature_flag_event_value", "Values of events, by the arm of a flag in a rollout.")
_LABELS: Final = ("feature_flag_key", "arm", "rollout_revision", "event")
_BOUNDS: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)
"""Upper bounds of the values of events, whose unit is the application's."""
_ARMS: Final = (Arm.CANDIDATE, Arm.BASELINE)


class UserArm(NamedTuple):
    """The arm that a user is in, of one flag."""

    key: str
    arm: str
    revision: str
    """The digest of the candidate."""


class _Series(NamedTuple):
    key: str
    arm: str
    revision: str
    event: str


class TooManyEventsError(ValueError):
    """Another event would have too many series; the message names the bound."""


class EventCounts:
    """The events of one process."""

    def __init__(self) -> None:
        self._counts: dict[_Series, int] = {}
        self._values = Histograms(_BOUNDS, *_VALUES, _LABELS)
        self._names: dict[str, None] = {}
        """Names of events, the one that was reported last at the end; also of those without a series."""

    def add(self, event: str, value: float | None, arms: Sequence[UserArm]) -> None:
        """Count an event for each flag. Raises TooManyEventsError, and counts it for none then."""
        self._remember(event)
        self.start((arm.key, arm.revision) for arm in arms)
        series = [_Series(*arm, event) for arm in arms]
        if sum(labels not in self._counts for labels in series) > MOST_SERIES - len(self._counts):
            raise TooManyEventsError(
                f"the flags in rollouts and the names of events have more than {MOST_SERIES:,} "
                "combinations; report fewer different events"
            )
        for labels in series:
            self._counts[labels] = self._counts.get(labels, 0) + 1
            if value is not None:
                self._values.add(labels, value)

    def start(self, flags: Iterable[tuple[str, str]]) -> None:
        """Start known events at 0 in both arms of these flags, each a (key, revision): Prometheus does not
        know how much a series grew before its first scrape.
        """
        for key, revision in flags:
            for name in self._names:
                for arm in _ARMS:
                    if len(self._counts) < MOST_SERIES:
                        self._counts.setdefault(_Series(key, arm.value, revision, name), 0)

    def forget(self, is_kept: Callable[[str, str], bool]) -> None:
        """Drop the series of flags and revisions for which `is_kept(key, revision)` is false."""
        self._counts = {
            series: count for series, count in self._counts.items() if is_kept(series.key, series.revision)
        }
        self._values.keep(self._counts)

    def families(self) -> Iterator[Metric]:
        """Yield the present values. May be called in another thread, so it reads copies."""
        events = counter(*_EVENTS, _LABELS)
        for labels, count in list(self._counts.items()):
            events.add_metric(labels, count)
        yield from (events, self._values.family())

    def _remember(self, event: str) -> None:
        if event not in self._names and len(self._names) >= MOST_EVENTS:
            used = {series.event for series, count in self._counts.items() if count}
            unused = next((name for name in self._names if name not in used), None)
            if unused is None:
                raise TooManyEventsError(
                    f"{MOST_EVENTS} different events are counted already; report fewer different ones, "
                    "or name those that count by --track-events"
                )
            del self._names[unused]
        self._names.pop(event, None)
        self._names[event] = None
