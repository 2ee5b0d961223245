"""Metric families of the published client, and their text.

Imported at the first scrape: with its HTTP server, ASGI, WSGI and push gateway it would be a tenth of every
start, and 3 MB of a sidecar that is not scraped.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric


def counter(
    name: str, what: str, labels: Sequence[str] = (), *, value: float | None = None
) -> CounterMetricFamily:
    """`name` is without the `_total` with which it is written; `value` is of one without labels."""
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, what, value, labels or None)


def gauge(
    name: str, what: str, labels: Sequence[str] = (), *, value: float | None = None
) -> GaugeMetricFamily:
    """`value` is of one without labels."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, what, value, labels or None)


def histogram(name: str, what: str, labels: Sequence[str]) -> HistogramMetricFamily:
    """Make a histogram with cumulative buckets, by upper bound, the last one `+Inf`."""
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(name, what, labels=labels)


class Histogram:
    """Counts of values per bucket."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of all values."""

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def include(self, other: Histogram) -> None:
        """Add the counts of `other`, which has the same bounds."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative buckets, for `histogram`."""
        names = (*(str(float(bound)) for bound in self._bounds), "+Inf")
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class Histograms:
    """One histogram for each combination of labels."""

    def __init__(self, bounds: tuple[float, ...], name: str, what: str, labels: Sequence[str]) -> None:
        self._bounds = bounds
        self._family = name, what, labels
        self._found: dict[tuple[str, ...], Histogram] = {}

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Count a value."""
        self._found.setdefault(labels, Histogram(self._bounds)).add(value)

    def keep(self, kept: Container[tuple[str, ...]]) -> None:
        """Forget the values of all other label combinations."""
        self._found = {labels: values for labels, values in self._found.items() if labels in kept}

    def family(self) -> Metric:
        """Return the present values. Also called outside the loop, so it iterates over a copy."""
        family = histogram(*self._family)
        for labels, values in list(self._found.items()):
            family.add_metric(labels, values.buckets(), values.total)
        return family


def text(families: Iterable[Metric]) -> bytes:
    """Prometheus' text format 0.0.4 of these and of the process' own memory, CPU and open files."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.registry import Collector

    class Given(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Given())
    ProcessCollector(registry=registry)
    return generate_latest(registry)
