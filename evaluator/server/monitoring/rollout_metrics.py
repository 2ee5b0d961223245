"""What is counted of flags in a rollout, by arm: evaluations, distinct users, and events that applications
report.

Labels come from served flags and from the names of events, whose number is bounded. Of a user only a hash is
kept, with a key that this process alone has and never shows, and only while the step lasts.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.rollouts import (
    ROLLOUT_ARM_KEY,
    ROLLOUT_CANDIDATE_KEY,
    ROLLOUT_SHARE_KEY,
    ROLLOUT_STEP_KEY,
    Arm,
)
from evaluator.server.monitoring.families import Histograms, counter, gauge
from evaluator.server.monitoring.unit_sample import UnitSample
from evaluator.store.rollout_history import RolloutHistory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from evaluator.flags.model import Scalar
    from evaluator.resolving.resolution import Resolution
    from evaluator.store.evaluate import Query
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store

MOST_EVENTS: Final = 50
"""Most different names of events."""
MOST_EVENT_SERIES: Final = 5_000
"""Most series of events."""
MOST_UNITS: Final = 65_536
"""Most users in all samples together."""
MOST_UNITS_OF_FLAG: Final = 8_192

_EVALUATIONS: Final = ("feature_flag_evaluations", "Evaluations of flags in a rollout, by arm.")
_EVENTS: Final = ("feature_flag_events", "Events of users, by the arm of a flag in a rollout.")
_VALUES: Final = ("feature_flag_event_value", "Values of events, by the arm of a flag in a rollout.")
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
_EVENT_LABELS: Final = ("feature_flag_key", "arm", _REVISION, "event")
_UNIT_LABELS: Final = ("feature_flag_key", "arm", _REVISION)
_BOUNDS: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)
"""Upper bounds of the values of events, whose unit is the application's."""


class UserArm(NamedTuple):
    """The arm that a user is in, of one flag."""

    key: str
    arm: str
    revision: str
    """The digest of the candidate."""


class _Step(NamedTuple):
    """What users are counted of: who is in which arm depends on all of it."""

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
    """Where one answer is counted."""

    arm: str
    evaluations: _Count
    sample: UnitSample | None
    """None: of the arm, no users are counted."""


class TooManyEventsError(ValueError):
    """Another event would have too many series; the message names the bound."""


class RolloutMetrics:
    """The counts by arm of one process."""

    def __init__(self, store: Store) -> None:
        self.history = RolloutHistory(store)
        self._secret = secrets.token_bytes(16)
        self._evaluations: dict[tuple[str, str, str, str, str], _Count] = {}
        self._events: dict[tuple[str, str, str, str], int] = {}
        self._values = Histograms(_BOUNDS, *_VALUES, _EVENT_LABELS)
        self._units: dict[_Step, UnitSample] = {}
        self._steps: frozenset[_Step] = frozenset()
        self._most_units = MOST_UNITS_OF_FLAG
        store.subscribe(self._forget_ended)

    def count(self, query: Query, key: str, resolution: Resolution) -> None:
        """Count one evaluation of a flag in a rollout, which its resolution names."""
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

    def count_event(self, event: str, value: float | None, arms: Sequence[UserArm]) -> None:
        """Count an event for each flag. Raises TooManyEventsError, and counts it for none then."""
        series = [(arm.key, arm.arm, arm.revision, event) for arm in arms]
        new = sum(labels not in self._events for labels in series)
        if new and len(self._events) + new > MOST_EVENT_SERIES:
            raise TooManyEventsError(
                f"the flags in rollouts and the names of events have more than {MOST_EVENT_SERIES:,} "
                "combinations; report fewer different events"
            )
        names = {labels[3] for labels in self._events} if new else {event}
        if event not in names and len(names) >= MOST_EVENTS:
            raise TooManyEventsError(
                f"{MOST_EVENTS} different events are counted already; report fewer different ones, "
                "or name those that count by --track-events"
            )
        for labels in series:
            self._events[labels] = self._events.get(labels, 0) + 1
            if value is not None:
                self._values.add(labels, value)

    def families(self) -> Iterator[Metric]:
        """Return the present values. Also called outside the loop, so it reads copies."""
        evaluations, events = counter(*_EVALUATIONS, _EVALUATION_LABELS), counter(*_EVENTS, _EVENT_LABELS)
        units, ratio = gauge(*_UNITS, _UNIT_LABELS), gauge(*_SHARE, ("feature_flag_key", _REVISION))
        for labels, counted in list(self._evaluations.items()):
            evaluations.add_metric(labels, counted.count)
        for series, count in list(self._events.items()):
            events.add_metric(series, count)
        for step, sample in list(self._units.items()):
            if step in self._steps:
                ratio.add_metric((step.key, step.revision), sample.share)
                for arm, count in sample.counts().items():
                    units.add_metric((step.key, arm, step.revision), count)
        yield from (evaluations, events, self._values.family(), units, ratio)

    def _forget_ended(self, snapshot: Snapshot) -> None:
        flags = snapshot.compiled.in_rollouts
        self._steps = frozenset(_Step.of(key, flag.flag.metadata) for key, flag in flags.items())
        self._most_units = max(1, min(MOST_UNITS_OF_FLAG, MOST_UNITS // max(1, len(flags))))
        self._units = {step: sample for step, sample in self._units.items() if step in self._steps}
        for sample in self._units.values():
            sample.resize(self._most_units)
        kept = self.history.revisions
        self._evaluations = {
            labels: counted for labels, counted in self._evaluations.items() if labels[4] in kept(labels[0])
        }
        self._events = {
            series: count for series, count in self._events.items() if series[2] in kept(series[0])
        }
        self._values.keep(self._events)
