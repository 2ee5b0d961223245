"""Counts evaluations in this process by flag and variant, for the charts of the page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.page.page_source import VariantRates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evaluator.resolving.resolution import Resolution

SECONDS: Final = 10
"""Length of an interval."""
KEPT: Final = 60
"""Intervals that are kept."""


@dataclass(frozen=True, slots=True)
class _Interval:
    end: int
    counts: Mapping[tuple[str, str], int]


class EvaluationRates:
    """The evaluations of the last KEPT intervals. `of` may be called in a thread, the rest on the loop."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._intervals: tuple[_Interval, ...] = ()

    def count(self, _query: object, key: str, resolution: Resolution) -> None:
        """Count one evaluation: an `Observer`. Errors are left out: their keys are unlimited."""
        if resolution.error_code is None:
            self._counts[key, resolution.variant or ""] += 1

    def end_interval(self, now: int) -> None:
        """Begin the next interval. now: Unix seconds."""
        self._intervals = (*self._intervals, _Interval(now, self._counts))[-KEPT:]
        self._counts = Counter()

    def of(self, keys: Sequence[str]) -> dict[str, VariantRates]:
        """The rates of those flags that were evaluated."""
        intervals, asked = self._intervals, set(keys)
        seen = {pair for interval in intervals for pair in interval.counts if pair[0] in asked}
        times = tuple(interval.end for interval in intervals)
        rates: dict[str, dict[str, tuple[float, ...]]] = {}
        for key, variant in sorted(seen):
            counts = (interval.counts.get((key, variant), 0) for interval in intervals)
            rates.setdefault(key, {})[variant] = tuple(count * 60 / SECONDS for count in counts)
        return {key: VariantRates(times, by_variant) for key, by_variant in rates.items()}
