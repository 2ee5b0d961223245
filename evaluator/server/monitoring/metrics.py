"""What Prometheus reads: flagd's counters of evaluations are here, the others in `requests`, `rpcs`,
`rollout_metrics` and `state_metrics`.

A tally is found once per resolution and kept with the snapshot, so that counting is an integer addition.
flagd's names (core/pkg/telemetry/metrics.go), in the form its OpenTelemetry exporter gives them. Labels come
from flags that are served and from fixed sets, never from a request, so their number is bounded.
"""

from __future__ import annotations

from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.flags.rollouts import ROLLOUT_ARM_KEY
from evaluator.host.loop_lag import NAME, WHAT, LoopLag
from evaluator.server.monitoring.families import counter, histogram, text
from evaluator.server.monitoring.requests import Requests
from evaluator.server.monitoring.rollout_metrics import RolloutMetrics
from evaluator.server.monitoring.rpcs import Durations
from evaluator.server.monitoring.state_metrics import StateMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from evaluator.resolving.resolution import Resolution
    from evaluator.store.evaluate import Query
    from evaluator.store.store import Snapshot, Store

PROVIDER: Final = "flagd"

IMPRESSIONS: Final = ("feature_flag_flagd_impression", "Evaluations of a flag.")
REASONS: Final = ("feature_flag_flagd_result_reason", "Evaluations by reason.")
IMPRESSION_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_result_variant",
    "feature_flag_provider_name",
    "feature_flag_reason",
)
REASON_LABELS: Final = (
    "feature_flag_key",
    "feature_flag_provider_name",
    "feature_flag_reason",
    "ExceptionTypeKeyName",
)


class Tally:
    """A count that only grows."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


Answers: TypeAlias = "Mapping[tuple[str, str], Tally]"
"""The numbers of one flag's answers, by variant and reason."""


class Metrics:
    """The counters of one process."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """`clock`: Unix seconds."""
        self.state = StateMetrics(store, clock)
        self.rollouts = RolloutMetrics(store)
        self.requests = Requests(perf_counter)
        self.rpcs = Durations(perf_counter)
        self.lag = LoopLag()
        self._answers: dict[str, dict[tuple[str, str], Tally]] = {}
        self._errors: dict[tuple[str, str], Tally] = {}
        self.close = store.subscribe(self._forget_removed)

    def count(self, query: Query, key: str, resolution: Resolution) -> None:
        """Count one evaluation: an `Observer`."""
        kept = query.snapshot.kept[self]
        try:
            kept[resolution].count += 1
        except KeyError:
            tally = self._tally(key, resolution)
            tally.count += 1
            if ROLLOUT_ARM_KEY in resolution.metadata:
                # Such an evaluation counts a user, too, so that no tally of it is kept.
                self.rollouts.count(query, key, resolution)
            elif resolution.error_code is None:
                kept[resolution] = tally

    def _tally(self, key: str, resolution: Resolution) -> Tally:
        # Errors are counted by kind, not by key: unknown keys are unlimited.
        reason = resolution.reason.value
        if resolution.error_code is not None:
            return self._errors.setdefault((reason, resolution.error_code.value), Tally())
        answers = self._answers.setdefault(key, {})
        return answers.setdefault((resolution.variant or "", reason), Tally())

    def text(self) -> bytes:
        """Everything, in Prometheus' text format 0.0.4. Takes some 100 ms with 10,000 flags: for a thread."""
        return text(self.collect())

    def collect(self) -> Iterator[Metric]:
        """Return all families but the process's own. Also called outside the loop, so it reads copies."""
        lag = histogram(NAME, WHAT, ())
        lag.add_metric((), list(self.lag.buckets()), self.lag.seconds)
        rest = self.requests.families(), (self.rpcs.family(),), self.state.families(), (lag,)
        return chain(self._evaluations(), self.rollouts.families(), *rest)

    def _forget_removed(self, snapshot: Snapshot) -> None:
        flags = snapshot.flag_set.flags
        for key in tuple(self._answers):
            if key not in flags:
                del self._answers[key]
                continue
            variants = flags[key].variants
            for variant, reason in tuple(self._answers[key]):
                if variant and variant not in variants:
                    del self._answers[key][variant, reason]

    def _evaluations(self) -> Iterator[Metric]:
        impressions = counter(*IMPRESSIONS, IMPRESSION_LABELS)
        reasons = counter(*REASONS, REASON_LABELS)
        for key, answers in list(self._answers.items()):
            for (variant, reason), tally in list(answers.items()):
                impressions.add_metric((key, variant, PROVIDER, reason), tally.count)
            for reason, count in _by_reason(dict(answers)).items():
                reasons.add_metric((key, PROVIDER, reason, ""), count)
        for (reason, error), tally in list(self._errors.items()):
            reasons.add_metric(("", PROVIDER, reason, error), tally.count)
        yield impressions
        yield reasons


def _by_reason(answers: Answers) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (_, reason), tally in answers.items():
        counts[reason] = counts.get(reason, 0) + tally.count
    return counts
