"""A proxy as a process: its parts joined, and its ports open until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from controller.api.kind import PROXY
from controller.api.kinds import FLAG_GRANT, NAMESPACE, ORDERED, POD, watched_by
from controller.app.namespace_limits import QuotaMetrics
from controller.app.process_frame import open_frame, run_process, tls_files
from controller.delivery.standing_orders import ORDER, ORDERS_LABEL
from controller.kube.adapters import ClusterPods
from controller.kube.reflector import WatchScope, reflectors_of
from controller.kube.reviews import ClusterReviews
from controller.proxy import receipt_service
from controller.proxy.access import AccessReviews
from controller.proxy.metrics import ProxyMetrics, ReceiptMetrics, served_after_histogram
from controller.proxy.orders import ORDER_KINDS
from controller.proxy.recording import SETTLE, Recorder
from controller.proxy.server import Proxy, ProxyOptions, ProxyReplica, ReceiptPorts
from controller.proxy.watch import PodUids
from controller.runtime.clock import now, unix_time
from controller.runtime.limits import NamespaceLimits
from controller.runtime.queue import KeyedQueue
from controller.runtime.watch_health import WatchHealth
from evaluator.http.limits import Limits as PortLimits
from evaluator.http.listener import Listener
from evaluator.http.routes import without_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from controller.app.settings import ProxySettings
    from controller.delivery.claims import Place
    from controller.kube.client import Cluster
    from controller.runtime.event import EventSink

LIMITS: Final = PortLimits(body_bytes=65_536, header_bytes=65_536, idle_seconds=120.0)
"""Subscribers ask for little. A silent one is asked for a sign of life after a minute, and gone after two."""


@dataclass(frozen=True, slots=True)
class ProxyProcess:
    """A replica whose ports are open."""

    replica: ProxyReplica
    registry: CollectorRegistry
    ports: Mapping[str, int]

    @property
    def sync(self) -> Listener:
        """The port of subscribers."""
        return self.replica.sync

    def work(self) -> Coroutine[Any, Any, None]:
        """Watch and deliver, until cancelled."""
        return self.replica.work()

    async def drain(self) -> None:
        """Send subscribers to other replicas, which still receive changes meanwhile."""
        await self.replica.drain()


@contextlib.asynccontextmanager
async def open_proxy(settings: ProxySettings) -> AsyncIterator[ProxyProcess]:
    """Ports open and parts joined; `work` does the rest. Raises OSError for a port or a certificate."""
    tls = await tls_files(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    async with open_frame(settings) as frame:
        cluster = await frame.connect()
        limits = NamespaceLimits(streams=settings.quota_streams, receipts=settings.quota_receipts)
        events = await frame.post_events(cluster)
        replica = _make_replica(settings, limits, cluster, frame.registry, events)
        frame.stack.callback(replica.proxy.close)
        members = without_pages(receipt_service.routes(replica.proxy.receipts, frame.offload))
        management = await frame.manage(replica.readiness, members)
        sync = await frame.listen(replica.sync, settings.host, settings.sync_port, tls)
        frame.stack.push_async_callback(replica.recorder.close)
        yield ProxyProcess(replica, frame.registry, {"sync": sync, "management": management})


def _make_replica(
    settings: ProxySettings,
    limits: NamespaceLimits,
    cluster: Cluster,
    registry: CollectorRegistry,
    events: EventSink,
) -> ProxyReplica:
    loop = asyncio.get_running_loop()
    namespaces = tuple(settings.namespaces or ("",))
    queue: KeyedQueue[Place] = KeyedQueue(loop.time, random.random, places=8, group=itemgetter(0))

    pods = PodUids()
    proxy = Proxy(
        _options(settings, limits),
        AccessReviews(ClusterReviews(cluster, settings.auth_audiences), clock=loop.time, unix_time=unix_time),
        ReceiptPorts(
            pods,
            ClusterPods(cluster),
            unix_time,
            lambda place: queue.put(place, SETTLE),
            served_after_histogram(registry).observe,
        ),
        loop,
        namespaces=namespaces,
        order_kinds=ORDER_KINDS,
    )
    pods.gone, watches = proxy.pod_gone, WatchHealth(loop.time)
    scopes = [
        WatchScope(type_, namespace)
        for type_ in watched_by(PROXY)
        if type_ is not FLAG_GRANT
        for namespace in namespaces
    ]
    reflectors = reflectors_of(cluster.api, proxy.informer, scopes, watches)
    all_pods = [WatchScope(POD, namespace) for namespace in namespaces]
    beside = (
        *reflectors_of(cluster.api, pods.informer, all_pods),
        *reflectors_of(cluster.api, proxy.informer, _order_scopes(namespaces)),
    )
    # Another process of the same pod is another proxy: what the first one knew goes with its Lease.
    identity = f"{settings.identity}-{secrets.token_hex(3)}"
    recorder = Recorder(proxy.receipts, cluster, identity, settings.namespace, now, queue)
    sync = Listener(proxy.routes(), _port_limits(settings), name="sync")
    registry.register(ProxyMetrics(proxy, watches, lambda: sync.connections))
    registry.register(QuotaMetrics(limits, proxy.usage))
    registry.register(ReceiptMetrics(proxy.receipts, lambda: recorder.writes))
    draining = settings.drain_delay, settings.drain_seconds
    return ProxyReplica(proxy, sync, recorder, reflectors, beside, events, now, *draining)


def _order_scopes(namespaces: Sequence[str]) -> list[WatchScope]:
    """What standing orders depend on. Namespaces are watched all over the cluster: they have no namespace."""
    labelled = [
        WatchScope(type_, namespace, labels=ORDERS_LABEL)
        for type_ in (POD, *ORDERED)
        for namespace in namespaces
    ]
    granting = [WatchScope(FLAG_GRANT, namespace) for namespace in namespaces]
    return [WatchScope(replace(NAMESPACE, content=False), labels=ORDER), *labelled, *granting]


def _port_limits(settings: ProxySettings) -> PortLimits:
    """The limits of the sync port."""
    return replace(
        LIMITS,
        connections=settings.max_connections,
        connections_per_host=settings.max_connections_per_host,
        buffered_bytes=settings.max_buffered_bytes,
    )


def _options(settings: ProxySettings, limits: NamespaceLimits) -> ProxyOptions:
    return ProxyOptions(
        context=settings.context,
        auth=settings.auth,
        max_streams=settings.max_streams,
        max_streams_per_host=settings.max_streams_per_host,
        stream_seconds=settings.stream_seconds,
        limits=limits,
        node_evaluators=settings.node_evaluators,
    )


async def run_proxy(settings: ProxySettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends it at once. Raises OSError as `open_proxy`."""
    await run_process(open_proxy(settings), say, ProxyProcess.drain)
