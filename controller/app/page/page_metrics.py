"""Metrics of the page of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.runtime.process.metrics import watch_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from controller.runtime.objects.watch_health import WatchHealth

RESULTS: Final = ("shown", "refused", "unavailable")


class PageMetrics(Collector):
    """Views and open pages, and how current the view of the cluster is."""

    def __init__(
        self, registry: CollectorRegistry, watches: WatchHealth, open_pages: Callable[[], int]
    ) -> None:
        self._watches = watches
        self._open_pages = open_pages
        self._requests = Counter(
            "flagstaff_page_requests",
            "Requests for views of the page, by what became of the caller's token.",
            ("result",),
            registry=registry,
        )
        for result in RESULTS:
            self._requests.labels(result)
        registry.register(self)

    def count(self, result: str) -> None:
        """Count a request, whose result is one of RESULTS."""
        self._requests.labels(result).inc()

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield GaugeMetricFamily(
            "flagstaff_page_streams", "Open pages that follow changes.", value=float(self._open_pages())
        )
        yield from watch_metrics(self._watches)
