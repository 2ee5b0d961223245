"""Counts evaluations, distinct users, and events that applications report, by arm of flags in a rollout.

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
from evaluator.server.monitoring.event_counts import EventCounts
from evaluator.server.monitoring.families import counter, gauge
from evaluator.server.monitoring.unit_sample import UnitSample
from evaluator.store.rollout_history import RolloutHistory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from evaluator.flags.model import Scalar
    from evaluator.resolving.resolution import Resolution
    from evaluator.store.evaluate import Query
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store

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
