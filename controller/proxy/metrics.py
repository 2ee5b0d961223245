"""Metrics of a proxy, whose labels are constants or names of objects."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.runtime.metrics import watch_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from controller.proxy.receipts import Receipts
    from controller.proxy.server import Proxy
    from controller.runtime.watch_health import WatchHealth


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


class ProxyMetrics(Collector):
    """Read off the parts at each scrape, in a thread beside the loop that changes them."""

    def __init__(self, proxy: Proxy, watches: WatchHealth, connections: Callable[[], int]) -> None:
        """`connections` says how many the sync port has."""
        self._hub = proxy.hub
        self._deliveries = proxy.deliveries
        self._authorizer = proxy.authorizer
        self._watches = watches
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        hub, authorizer, deliveries = self._hub, self._authorizer, self._deliveries
        limits, waiting = authorizer.limits, authorizer.waiting
        for name, text, value in (
            ("streams", "Open streams of flag sets.", hub.streams),
            ("topics", "Flag sets with subscribers, by form of message.", hub.topics),
            ("hosts", "Addresses that streams come from.", limits.hosts),
            ("streams_waiting", "Streams whose token is being reviewed.", waiting.taken),
            ("connections", "Open connections of the sync port.", self._connections()),
            ("objects", "Objects that are known.", len(deliveries.catalog)),
        ):
            yield GaugeMetricFamily(f"flagstaff_proxy_{name}", text, value=float(value))
        for name, text, value in (
            ("messages_sent", "Flag sets sent to streams.", hub.sent),
            (
                "messages_skipped", "Flag sets that were not sent because a newer one replaced them.",
                hub.skipped,
            ),
            ("builds", "Flag sets that were read and encoded.", deliveries.contents.built),
            ("streams_refused", "Streams beyond the limits.", limits.refused + waiting.refused),
        ):  # fmt: skip
            yield CounterMetricFamily(f"flagstaff_proxy_{name}", text, value=float(value))
        reviews = CounterMetricFamily(
            "flagstaff_proxy_auth", "Streams by the result of the review of their token.", labels=("result",)
        )  # fmt: skip
        for result, count in tuple(authorizer.results.items()):
            reviews.add_metric((result,), count)
        yield reviews
        yield from watch_metrics(self._watches)
        yield from self._of_sets()

    def _of_sets(self) -> Iterator[Metric]:
        labels = ("namespace", "name")
        held = GaugeMetricFamily(
            "flagstaff_proxy_flags_held", "Flags at their last good definition.", labels=labels
        )
        dropped = GaugeMetricFamily(
            "flagstaff_proxy_flags_left_out", "Flags with errors and no good definition.", labels=labels
        )  # fmt: skip
        unfit = GaugeMetricFamily(
            "flagstaff_proxy_set_unfit",
            "1 while an object's newest content is not delivered.",
            labels=(*labels, "reason"),
        )
        conflicts = GaugeMetricFamily(
            "flagstaff_proxy_conflict",
            "1 while an object loses its name or flagSetId to another.",
            labels=("kind", *labels, "reason"),
        )
        for place, content in self._deliveries.contents.all():
            undeliverable, built = content.undeliverable, content.built
            if undeliverable is not None:
                unfit.add_metric((*place, undeliverable.reason), 1.0)
            if built is not None and built.held:
                held.add_metric(place, len(built.held))
            if built is not None and built.left_out:
                dropped.add_metric(place, len(built.left_out))
        for conflict in self._deliveries.catalog.claims.conflicts():
            key = conflict.loser
            conflicts.add_metric((key.kind, key.namespace, key.name, conflict.reason), 1.0)
        yield from (held, dropped, unfit, conflicts)
