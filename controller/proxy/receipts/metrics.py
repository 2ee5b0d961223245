"""Metrics of receipts. Sums over all flag sets are exact; series by flag set are bounded."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from controller.proxy.receipts.receipts import Receipts

MOST_SETS: Final = 500
"""Flag sets that have series of their own: those with laggards first, then those that most follow."""
_STATES: Final = ("served", "lagging", "delivered")
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)


def served_after_histogram(registry: CollectorRegistry) -> Histogram:
    """The histogram that `Receipts.served_after` is to observe."""
    return Histogram(
        "flagstaff_proxy_served_after_seconds",
        "Time from the moment at which a change was observed until a member served it.",
        buckets=_SECONDS,
        registry=registry,
    )


class ReceiptMetrics(Collector):
    """Read off the receipts at each scrape, in a thread beside the loop that changes them."""

    def __init__(self, receipts: Receipts, writes: Callable[[], int], *, most_sets: int = MOST_SETS) -> None:
        """`writes` says how many writes of FlagReceipts there were; `most_sets` have series of their own."""
        self._most_sets = most_sets
        self._receipts = receipts
        self._writes = writes

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield CounterMetricFamily(
            "flagstaff_proxy_receipts", "Receipts that were accepted.", value=self._receipts.reports
        )
        refused = CounterMetricFamily(
            "flagstaff_proxy_receipts_refused", "Receipts that were refused.", labels=("reason",)
        )
        for reason, count in tuple(self._receipts.refused.items()):
            refused.add_metric((reason,), count)
        yield refused
        yield CounterMetricFamily(
            "flagstaff_proxy_receipt_writes", "Writes of FlagReceipt objects.", value=self._writes()
        )
        yield from self._of_members()

    def _of_members(self) -> Iterator[Metric]:
        counts = self._receipts.counts()
        every = GaugeMetricFamily(
            "flagstaff_proxy_members",
            "Evaluators by what they serve, and streams of subscribers that send no receipts.",
            labels=("state",),
        )
        for state in _STATES:
            every.add_metric((state,), sum(getattr(count, state) for count in counts))
        yield every
        by_set = GaugeMetricFamily(
            "flagstaff_proxy_set_members",
            "Evaluators by flag set and by what they serve, for flag sets that lag or have most followers.",
            labels=("namespace", "name", "state"),
        )
        for count in heapq.nsmallest(
            self._most_sets, counts, key=lambda count: (not count.lagging, -count.followers)
        ):
            for state in _STATES:
                by_set.add_metric((*count.place, state), getattr(count, state))
        yield by_set
