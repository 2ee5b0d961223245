"""The controller's metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from controller.api import flagoverride, flagrollout
from controller.api.artifact_status import SourceStatus
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagoverride import ACTIVE, FlagOverrideSpec, FlagOverrideStatus
from controller.api.kinds import status_of
from controller.api.rollout_status import FlagRolloutStatus, Phase, Verdict
from evaluator.host.loop_lag import NAME, WHAT, LoopLag
from evaluator.host.times import parse_time
from evaluator.server.families import PortMetrics, share_families

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from prometheus_client.core import Metric

    from controller.api.meta import ObjectKey, Resource
    from controller.api.status import Status
    from controller.runtime.cache import Cache
    from controller.runtime.process import Role
    from controller.runtime.queue import KeyedQueue
    from controller.runtime.shards import ShardFollower
    from controller.runtime.watch_health import WatchHealth


_DIGITS: Final = 12
_RUNNING, _ENDED_WELL, _FAILED, _HELD = 0.0, 1.0, 2.0, 3.0
_STATES: Final[Mapping[Phase, float]] = {
    "Idle": _ENDED_WELL,
    "Succeeded": _ENDED_WELL,
    "Progressing": _RUNNING,
    "Promoting": _RUNNING,
    "Queued": _HELD,
    "Pending": _HELD,
    "Paused": _HELD,
    "WaitingPromotion": _HELD,
    "RollingBack": _FAILED,
    "Failed": _FAILED,
}


def override_metrics(objects: Iterable[Resource]) -> Iterator[Metric]:
    """Metrics of FlagOverrides."""
    active = GaugeMetricFamily(
        "flagstaff_override_active",
        "1 while a FlagOverride is in force.",
        labels=("namespace", "name", "flag_set", "flag"),
    )
    for resource in objects:
        if FlagOverrideStatus.of(resource).state != ACTIVE:
            continue
        try:
            spec = parse_spec(FlagOverrideSpec, resource)
        except InvalidSpecError:
            continue
        active.add_metric((resource.namespace, resource.name, spec.flag_set_ref.name, spec.flag), 1.0)
    yield active


def rollout_metrics(objects: Iterable[Resource]) -> Iterator[Metric]:
    """Metrics of FlagRollouts, of those with a status."""
    state = GaugeMetricFamily(
        "flagstaff_rollout_status",
        "0 while a rollout goes on, 1 while there is none, 2 where it failed, 3 while it is held.",
        labels=("namespace", "name"),
    )
    share = GaugeMetricFamily(
        "flagstaff_rollout_share",
        "Percent of users who get the new definitions of a candidate, besides audiences.",
        labels=("namespace", "name", "candidate"),
    )
    value = GaugeMetricFamily(
        "flagstaff_rollout_metric_value",
        "The newest value of a rollout's metric; of tests the evidence.",
        labels=("namespace", "name", "candidate", "metric"),
    )
    for resource in objects:
        status = FlagRolloutStatus.of(resource)
        if status.phase is None:
            continue
        key = (resource.namespace, resource.name)
        state.add_metric(key, _STATES[status.phase])
        for candidate in status.candidates:
            part = (*key, candidate.digest.removeprefix("sha256:")[:_DIGITS])
            share.add_metric(part, candidate.share or 0.0)
            for metric in candidate.metrics:
                if metric.value is not None:
                    value.add_metric((*part, metric.name), metric.value)
    yield state
    yield share
    yield value


_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_OBJECT: Final = ("kind", "namespace", "name")


class ControllerMetrics(Collector):
    """The counters of one process, and gauges read off the objects at each scrape."""

    def __init__(
        self,
        objects: Cache,
        queues: Mapping[str, KeyedQueue[ObjectKey]],
        now: Callable[[], datetime],
        watches: WatchHealth,
        role: Role,
        registry: CollectorRegistry,
    ) -> None:
        self.registry = registry
        self._objects = objects
        self._watches = watches
        self._queues = queues
        self._now = now
        self._role = role
        self._duration = Histogram(
            "flagstaff_reconcile_duration_seconds",
            "How long reconciles took.",
            ("kind", "result"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._writes = Counter(
            "flagstaff_api_writes",
            "Writes to the API server that were tried.",
            ("verb", "kind"),
            registry=registry,
        )
        self._received = Counter(
            "flagstaff_receiver_requests",
            "Requests to FlagReceivers, by result.",
            ("type", "outcome"),
            registry=registry,
        )
        self._alerts = Counter(
            "flagstaff_alerts", "Tries to deliver an alert, by result.", ("type", "result"), registry=registry
        )
        self._checks = Counter(
            "flagstaff_rollout_checks",
            "Checks of rollouts' metrics, by verdict.",
            ("verdict",),
            registry=registry,
        )
        for verdict in get_args(Verdict):
            # A rate shows the first check of a verdict only where there was a zero before it.
            self._checks.labels(verdict)
        registry.register(self)

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

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        leader = GaugeMetricFamily("flagstaff_leader", "1 while this replica leads.", labels=("lease",))
        leader.add_metric((self._role.lease,), float(self._role.leading))
        yield leader
        depth = GaugeMetricFamily(
            "flagstaff_queue_depth", "Objects that are waiting to be reconciled.", labels=("kind",)
        )
        for kind, queue in self._queues.items():
            depth.add_metric((kind,), len(queue))
        yield depth
        yield from watch_metrics(self._watches)
        yield from self._of_objects()
        yield from override_metrics(self._own(self._objects.of_kind(flagoverride.KIND)))
        yield from rollout_metrics(self._own(self._objects.of_kind(flagrollout.KIND)))
        if self._role.leading:
            yield self._of_evaluators()

    def _own(self, objects: Iterable[Resource]) -> Iterator[Resource]:
        """Those of other shards are measured there."""
        return filter(self._role.shard.owns, objects)

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
        for resource in self._own(self._objects):
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
                lapsed = parse_time(entry.stale_since)
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
        for resource in self._own(self._objects):
            status = status_of(resource)
            if not isinstance(status, ConfigurationStatus) or status.total is None:
                continue
            if (served := status.served_by) is not None:
                key = (resource.namespace, resource.name)
                evaluators.add_metric((*key, "served"), served)
                evaluators.add_metric((*key, "lagging"), status.total - served)
                evaluators.add_metric((*key, "delivered"), status.delivered or 0)
        return evaluators


@dataclass(frozen=True, slots=True, eq=False)
class ShardMetrics(Collector):
    """Objects that no controller reconciles, which the default one reports, or more than one."""

    follower: ShardFollower | None
    """None: this controller selects every object."""
    objects: Cache
    kinds: Collection[str]
    role: Role

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        owners = GaugeMetricFamily(
            "flagstaff_object_shards",
            "How many controllers reconcile an object, where that is not one.",
            labels=("kind", "namespace", "name"),
        )
        own, living = self.role.shard, None if self.follower is None else self.follower.living
        if self.role.leading and living is not None:
            for resource in self.objects:
                if resource.key.kind in self.kinds and (own.is_default or own.owns(resource)):
                    number = sum(shard.owns(resource) for shard in living)
                    if number != 1:
                        owners.add_metric((resource.key.kind, resource.namespace, resource.name), number)
        yield owners


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
    return parse_time(status.artifact.last_update_time)


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
