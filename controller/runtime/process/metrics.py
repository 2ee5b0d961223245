"""The controller's metrics. Labels are kinds, namespaces and names of our own objects; never a message."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from controller.api.kinds import status_of
from controller.api.objects.artifact_status import SourceStatus
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.api.rollouts.rollout_status import Verdict
from controller.runtime.process.progress_metrics import override_metrics, rollout_metrics
from evaluator.host.loop_lag import NAME, WHAT, LoopLag
from evaluator.server.monitoring.port_metrics import PortMetrics
from evaluator.server.monitoring.share_metrics import share_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from controller.api.objects.meta import ObjectKey
    from controller.api.objects.status import Status
    from controller.runtime.objects.cache import Cache
    from controller.runtime.objects.watch_health import WatchHealth
    from controller.runtime.process.leadership import Role
    from controller.runtime.reconciling.queue import KeyedQueue

_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_OBJECT: Final = ("kind", "namespace", "name")


class Metrics(Collector):
    """The counters of one process, and gauges read off the objects at each scrape."""

    def __init__(
        self,
        objects: Cache,
        queues: Mapping[str, KeyedQueue[ObjectKey]],
        now: Callable[[], datetime],
        watches: WatchHealth,
        role: Role,
    ) -> None:
        self._objects = objects
        self._watches = watches
        self._queues = queues
        self._now = now
        self._role = role
        self.registry = CollectorRegistry(auto_describe=False)
        self._duration = Histogram(
            "flagstaff_reconcile_duration_seconds",
            "How long reconciles took.",
            ("kind", "result"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._writes = Counter(
            "flagstaff_api_writes",
            "Writes to the API server that were tried.",
            ("verb", "kind"),
            registry=self.registry,
        )
        self._received = Counter(
            "flagstaff_receiver_requests",
            "Requests to FlagReceivers, by result.",
            ("type", "outcome"),
            registry=self.registry,
        )
        self._alerts = Counter(
            "flagstaff_alerts",
            "Tries to deliver an alert, by result.",
            ("type", "result"),
            registry=self.registry,
        )
        self._checks = Counter(
            "flagstaff_rollout_checks",
            "Checks of rollouts' metrics, by verdict.",
            ("verdict",),
            registry=self.registry,
        )
        for verdict in get_args(Verdict):
            # A rate shows the first check of a verdict only where there was a zero before it.
            self._checks.labels(verdict)
        process = ProcessMetrics()
        self.registry.register(process)
        self.lag, self.ports = process.lag, process.ports
        self.registry.register(self)

    def count_reconcile(self, key: ObjectKey, result: str, seconds: float) -> None:
        """Count a finished reconcile."""
        self._duration.labels(key.kind, result).observe(seconds)

    def count_write(self, verb: str, kind: str) -> None:
        """Count an attempted write."""
        self._writes.labels(verb, kind).inc()

    def count_webhook(self, kind: str, outcome: str) -> None:
        """Count an answered webhook."""
        self._received.labels(kind, outcome).inc()

    def count_alert(self, kind: str, result: str) -> None:
        """Count a sent alert: `delivered`, `failed` or `dead`."""
        self._alerts.labels(kind, result).inc()

    def count_check(self, verdict: str) -> None:
        """Count a check of a rollout's metric."""
        self._checks.labels(verdict).inc()

    def text(self) -> bytes:
        """Everything, in Prometheus' text format 0.0.4. Takes some hundred milliseconds with thousands of
        objects: for a thread.
        """
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield GaugeMetricFamily(
            "flagstaff_leader", "1 while this replica leads.", value=float(self._role.leading)
        )
        depth = GaugeMetricFamily(
            "flagstaff_queue_depth", "Objects that are waiting to be reconciled.", labels=("kind",)
        )
        for kind, queue in self._queues.items():
            depth.add_metric((kind,), len(queue))
        yield depth
        yield from watch_metrics(self._watches)
        yield from self._of_objects()
        yield from override_metrics(self._objects)
        yield from rollout_metrics(self._objects)
        if self._role.leading:
            yield self._of_evaluators()

    def _of_objects(self) -> Iterator[Metric]:
        conditions = GaugeMetricFamily(
            "flagstaff_condition", "1 while a condition has the status.", labels=(*_OBJECT, "type", "status")
        )
        suspended = GaugeMetricFamily(
            "flagstaff_suspended", "1 while an object is suspended.", labels=_OBJECT
        )
        age = GaugeMetricFamily(
            "flagstaff_artifact_age_seconds", "Time since a source's artifact last changed.", labels=_OBJECT
        )
        stale = GaugeMetricFamily(
            "flagstaff_remote_flags_stale_seconds",
            "Time since a remote provider confirmed its flags last; 0 while it does.",
            labels=("namespace", "name", "provider"),
        )
        for resource in self._objects:
            if resource.key.kind not in self._queues:
                continue
            key = (resource.key.kind, resource.namespace, resource.name)
            suspended.add_metric(key, float(resource.suspended))
            for condition in (status := status_of(resource)).conditions:
                conditions.add_metric((*key, condition.type, condition.status), 1.0)
            since = _artifact_time(status)
            if since is not None:
                age.add_metric(key, self._since(since))
            for entry in (status.providers or ()) if isinstance(status, ConfigurationStatus) else ():
                lapsed = _time(entry.stale_since or "")
                seconds = 0.0 if lapsed is None else self._since(lapsed)
                stale.add_metric((resource.namespace, resource.name, entry.name), seconds)
        yield conditions
        yield suspended
        yield age
        yield stale

    def _since(self, moment: datetime) -> float:
        return max(0.0, (self._now() - moment).total_seconds())

    def _of_evaluators(self) -> Metric:
        """Evaluators of the objects whose status lists them; only of the leader, so that sums are right."""
        evaluators = GaugeMetricFamily(
            "flagstaff_evaluators",
            "Evaluators by what they serve, and streams of subscribers that send no receipts.",
            labels=("namespace", "name", "state"),
        )
        for resource in self._objects:
            status = status_of(resource)
            if not isinstance(status, ConfigurationStatus) or status.total is None:
                continue
            if (served := status.served_by) is not None:
                key = (resource.namespace, resource.name)
                evaluators.add_metric((*key, "served"), served)
                evaluators.add_metric((*key, "lagging"), status.total - served)
                evaluators.add_metric((*key, "delivered"), status.delivered or 0)
        return evaluators


class ProcessMetrics(Collector):
    """Metrics of a process: the lag of its event loop, its ports, and what is shared in it."""

    def __init__(self) -> None:
        self.lag = LoopLag()
        self.ports = PortMetrics()

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        lag = self.lag
        yield HistogramMetricFamily(NAME, WHAT, buckets=list(lag.buckets()), sum_value=lag.seconds)
        yield from self.ports.families()
        yield from share_families()


def _artifact_time(status: Status) -> datetime | None:
    if not isinstance(status, SourceStatus) or status.artifact is None:
        return None
    return _time(status.artifact.last_update_time)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def watch_metrics(watches: WatchHealth) -> Iterator[Metric]:
    """Metrics of the watches' health, by kind."""
    age = GaugeMetricFamily(
        "flagstaff_watch_age_seconds",
        "Time since the API server last confirmed what is known of a kind.",
        labels=("kind",),
    )
    connected = GaugeMetricFamily(
        "flagstaff_watch_connected", "1 while the watch of the kind is open.", labels=("kind",)
    )
    for report in watches.reports():
        connected.add_metric((report.kind,), float(report.connected))
        if report.age is not None:
            age.add_metric((report.kind,), report.age)
    yield age
    yield connected
