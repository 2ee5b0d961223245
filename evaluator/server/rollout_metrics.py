"""Counts evaluations, distinct users, and events that applications report, by arm of flags in a rollout.

Distinct users are counted exactly, in a sample of bounded size.

Adaptive sampling (Flajolet, On adaptive sampling, 1990, https://doi.org/10.1007/BF02241657): a user is in the
sample if the hash of its targeting key is below a limit, which is halved while the sample is too large. All
arms have the same limit, so the numbers of their users can be compared.

Labels come from served flags and from the names of events, whose number is bounded. Of a user only a hash is
kept, with a key that this process alone has and never shows, and only while the step lasts.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.rollouts import (
    ROLLOUT_ARM_KEY,
    ROLLOUT_CANDIDATE_KEY,
    ROLLOUT_SHARE_KEY,
    ROLLOUT_STEP_KEY,
    Arm,
)
from evaluator.server.families import Histograms, counter, gauge
from evaluator.store.history import RolloutHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from evaluator.flags.model import Scalar
    from evaluator.resolving.resolution import Resolution
    from evaluator.store.query import Query
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store


HASHES: Final = 2**64
"""The number of hashes: 0 to HASHES - 1."""


class UnitSample:
    """Hashes of users, each with the arm that it was last counted for."""

    def __init__(self, most: int) -> None:
        """most: the most users in the sample, at least 1."""
        self._most = most
        self._limit = HASHES
        self._arms: dict[int, str] = {}

    @property
    def share(self) -> float:
        """The part of all users that is in the sample: 1, a half, a quarter, …"""
        return self._limit / HASHES

    def add(self, user_hash: int, arm: str) -> None:
        """Count a user, by a hash that is uniform in 0 to HASHES - 1."""
        if user_hash < self._limit:
            self._arms[user_hash] = arm
            self._shrink()

    def resize(self, most: int) -> None:
        """Change the size of the sample; it never grows back."""
        self._most = most
        self._shrink()

    def counts(self) -> Mapping[str, int]:
        """Return the number of users in the sample by arm. May be called in a thread."""
        return Counter(list(self._arms.values()))

    def _shrink(self) -> None:
        while len(self._arms) > self._most:
            self._limit //= 2
            self._arms = {user_hash: arm for user_hash, arm in self._arms.items() if user_hash < self._limit}


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


class _EventSeries(NamedTuple):
    key: str
    arm: str
    revision: str
    event: str


class TooManyEventsError(ValueError):
    """Another event would have too many series; the message names the bound."""


class EventCounts:
    """The events of one process."""

    def __init__(self) -> None:
        self._counts: dict[_EventSeries, int] = {}
        self._values = Histograms(_BOUNDS, *_VALUES, _LABELS)
        self._names: dict[str, None] = {}
        """Names of events, the one that was reported last at the end; also of those without a series."""

    def add(self, event: str, value: float | None, arms: Sequence[UserArm]) -> None:
        """Count an event for each flag. Raises TooManyEventsError, and counts it for none then."""
        self._remember(event)
        self.start((arm.key, arm.revision) for arm in arms)
        series = [_EventSeries(*arm, event) for arm in arms]
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
                        self._counts.setdefault(_EventSeries(key, arm.value, revision, name), 0)

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


MOST_UNITS: Final = 65_536
"""Most users in all samples together."""
MOST_UNITS_OF_FLAG: Final = 8_192

_EVALUATIONS: Final = ("feature_flag_evaluations", "Evaluations of flags in a rollout, by arm.")
_UNITS: Final = (
    "feature_flag_units",
    "Distinct users in the sample of a rollout's step, by the arm that they got.",
)
_SHARE: Final = ("feature_flag_units_sample_ratio", "The part of all users that the sample of units has.")
_REVISION: Final = "rollout_revision"
_EVALUATION_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_result_variant",
    "feature_flag_result_reason",
    "arm",
    _REVISION,
)
_UNIT_LABELS: Final = ("feature_flag_key", "arm", _REVISION)


class _Step(NamedTuple):
    """The step of a flag's rollout, for which distinct users are counted: it decides their arms."""

    key: str
    revision: str
    step: str
    share: str

    @classmethod
    def of(cls, key: str, metadata: Mapping[str, Scalar]) -> _Step:
        """The step that the metadata of a flag names."""
        names = (ROLLOUT_CANDIDATE_KEY, ROLLOUT_STEP_KEY, ROLLOUT_SHARE_KEY)
        return cls(key, *(str(metadata.get(name, "")) for name in names))


class _Count:
    """A count that only grows."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, slots=True)
class _Series:
    """The counts of one answer."""

    arm: str
    evaluations: _Count
    sample: UnitSample | None
    """The sample of users; None: users of this arm are not counted."""


class RolloutMetrics:
    """The counts by arm of one process."""

    def __init__(self, store: Store) -> None:
        self.history = RolloutHistory(store)
        self._secret = secrets.token_bytes(16)
        self._evaluations: dict[tuple[str, str, str, str, str], _Count] = {}
        self.events = EventCounts()
        self._units: dict[_Step, UnitSample] = {}
        self._steps: frozenset[_Step] = frozenset()
        self._most_units = MOST_UNITS_OF_FLAG
        store.subscribe(self._forget_old_steps)

    def count(self, query: Query, key: str, resolution: Resolution) -> None:
        """Count one evaluation of a flag whose resolution names its rollout."""
        kept = query.snapshot.kept[self]
        series = kept.get(resolution) or kept.setdefault(resolution, self._series_of(key, resolution))
        series.evaluations.count += 1
        if series.sample is not None:
            series.sample.add(self._hash(query.context.get("targetingKey")), series.arm)

    def _series_of(self, key: str, resolution: Resolution) -> _Series:
        metadata = resolution.metadata
        arm, step = str(metadata[ROLLOUT_ARM_KEY]), _Step.of(key, metadata)
        labels = (key, resolution.variant or "", resolution.reason.value, arm, step.revision)
        sample = None
        if arm != Arm.EXCLUDED:
            sample = self._units.setdefault(step, UnitSample(self._most_units))
        return _Series(arm, self._evaluations.setdefault(labels, _Count()), sample)

    def _hash(self, unit: object) -> int:
        text = str(unit).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=self._secret).digest())

    def families(self) -> Iterator[Metric]:
        """Return the present values. Also called outside the loop, so it reads copies."""
        evaluations = counter(*_EVALUATIONS, _EVALUATION_LABELS)
        units, ratio = gauge(*_UNITS, _UNIT_LABELS), gauge(*_SHARE, ("feature_flag_key", _REVISION))
        for labels, series_count in list(self._evaluations.items()):
            evaluations.add_metric(labels, series_count.count)
        for step, sample in list(self._units.items()):
            if step in self._steps:
                ratio.add_metric((step.key, step.revision), sample.share)
                for arm, count in sample.counts().items():
                    units.add_metric((step.key, arm, step.revision), count)
        yield from (evaluations, *self.events.families(), units, ratio)

    def _forget_old_steps(self, snapshot: Snapshot) -> None:
        flags = snapshot.compiled.in_rollouts
        self._steps = frozenset(_Step.of(key, flag.flag.metadata) for key, flag in flags.items())
        self._most_units = max(1, min(MOST_UNITS_OF_FLAG, MOST_UNITS // max(1, len(flags))))
        self._units = {step: sample for step, sample in self._units.items() if step in self._steps}
        for sample in self._units.values():
            sample.resize(self._most_units)
        self._evaluations = {
            labels: series_count
            for labels, series_count in self._evaluations.items()
            if self._is_kept(labels[0], labels[4])
        }
        self.events.forget(self._is_kept)
        self.events.start((key, flag.revision) for key, flag in flags.items())

    def _is_kept(self, key: str, revision: str) -> bool:
        return revision in self.history.revisions(key)
