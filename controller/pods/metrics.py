"""Metrics of admission. Labels are kinds and outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter
from prometheus_client.registry import Collector

from controller.runtime.metrics import watch_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from controller.runtime.watch_health import WatchHealth


class AdmissionMetrics(Collector):
    """Reviews, counted, and how current the view of the cluster is."""

    def __init__(self, registry: CollectorRegistry, watches: WatchHealth) -> None:
        self._watches = watches
        self._reviews = Counter(
            "flagstaff_admission_reviews",
            "Pods and objects of our kinds that the API server asked about, by outcome.",
            ("kind", "outcome"),
            registry=registry,
        )
        registry.register(self)

    def count_review(self, kind: str, outcome: str) -> None:
        """Count an admitted or refused object of `kind`. Any thread may call this."""
        self._reviews.labels(kind, outcome).inc()

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield from watch_metrics(self._watches)
