"""Metric families of the published client, and their text.

Imported at the first scrape: with its HTTP server, ASGI, WSGI and push gateway it would be a tenth of every
start, and 3 MB of a sidecar that is not scraped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )


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
    """Its buckets are cumulative, by upper bound, the last one `+Inf`."""
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(name, what, labels=labels)


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
