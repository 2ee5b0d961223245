"""What Prometheus reads of a proxy; `flagstaff_proxy_streams` is what replicas are scaled by. Labels are
ours, or name objects that are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.core import Metric

    from controller.proxy.access.authorizer import Guard
    from controller.proxy.streams.deliveries import Deliveries
    from evaluator.wire.hub import Hub


class View(Protocol):
    """One watch, as metrics and readiness show it."""

    @property
    def connected(self) -> bool:
        """Whether it hears of changes now."""

    def age(self) -> float | None:
        """Seconds since what is known was last confirmed; None: never."""


class Metrics(Collector):
    """Read off the parts at each scrape."""

    def __init__(
        self, hub: Hub, deliveries: Deliveries, guard: Guard, views: Sequence[tuple[str, View]]
    ) -> None:
        self._hub = hub
        self._deliveries = deliveries
        self._guard = guard
        self._views = views
        """Watches by the kind's plural."""
        self.connections: Callable[[], int] = lambda: 0
        """How many connections the sync port has."""
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def text(self) -> bytes:
        """Everything, in Prometheus' text format 0.0.4."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        hub, guard, deliveries = self._hub, self._guard, self._deliveries
        for name, told, value in (
            ("streams", "Open streams of flag sets.", hub.streams),
            ("topics", "Flag sets that somebody subscribes to, by form of message.", hub.topics),
            ("hosts", "Addresses that streams come from.", guard.seats.hosts),
            ("streams_waiting", "Streams whose token is being reviewed.", guard.waiting.taken),
            ("connections", "Open connections of the sync port.", self.connections()),
            ("objects", "Objects that are known.", len(deliveries.catalog)),
        ):
            yield GaugeMetricFamily(f"flagstaff_proxy_{name}", told, value=float(value))
        for name, told, value in (
            ("messages_sent", "Flag sets sent to streams.", hub.sent),
            ("messages_skipped", "Flag sets that a stream was spared by a newer one.", hub.skipped),
            ("builds", "Contents that were read and encoded.", deliveries.contents.built),
            ("streams_refused", "Streams beyond the limits.", guard.seats.refused + guard.waiting.refused),
        ):  # fmt: skip
            yield CounterMetricFamily(f"flagstaff_proxy_{name}", told, value=float(value))
        looks = CounterMetricFamily(
            "flagstaff_proxy_auth", "Streams by what came of a look at their token.", labels=("result",)
        )  # fmt: skip
        for result, count in guard.looks.items():
            looks.add_metric((result,), count)
        yield looks
        yield from self._of_watches()
        yield from self._of_sets()

    def _of_watches(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "flagstaff_watch_age_seconds",
            "Time since the API server last confirmed what is known of a kind.",
            labels=("kind",),
        )
        connected = GaugeMetricFamily(
            "flagstaff_watch_connected", "1 while changes are heard of.", labels=("kind",)
        )
        for kind in dict.fromkeys(name for name, _ in self._views):
            views = [view for name, view in self._views if name == kind]
            ages = [found for view in views if (found := view.age()) is not None]
            connected.add_metric((kind,), float(all(view.connected for view in views)))
            if ages:
                age.add_metric((kind,), max(ages))
        yield age
        yield connected

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
        for place, each in self._deliveries.contents.all():
            if each.unfit is not None:
                unfit.add_metric((*place, each.unfit.reason), 1.0)
            if each.built is not None and each.built.held:
                held.add_metric(place, len(each.built.held))
            if each.built is not None and each.built.left_out:
                dropped.add_metric(place, len(each.built.left_out))
        for conflict in self._deliveries.catalog.conflicts():
            key = conflict.loser
            conflicts.add_metric((key.kind, key.namespace, key.name, conflict.reason), 1.0)
        yield from (held, dropped, unfit, conflicts)
