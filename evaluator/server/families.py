"""Metric families of the published client, and their text.

It is imported at the first scrape: with its HTTP server, ASGI, WSGI and push gateway it would be a tenth of every start, and 3 MB of a sidecar
that nobody scrapes.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )

_CLIENT: Final = "prometheus_client"
_GLANCE: Final = 0.0002
"""Seconds that a step leaves to the thread that imports."""


def imported() -> Generator[None, None, None]:
    """Import it in a thread, for it takes 50 ms; a step waits for it a moment, that others are answered in between."""
    if _CLIENT in sys.modules:
        return
    thread = threading.Thread(target=import_module, args=(_CLIENT,))
    thread.start()
    while thread.is_alive():
        thread.join(_GLANCE)
        yield


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
    """Prometheus' text format 0.0.4 of these and of the process' own: as flagd has it from Go's client, memory, CPU and open files."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.registry import Collector

    class Given(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Given())
    ProcessCollector(registry=registry)
    return generate_latest(registry)
