"""A proxy as a process: opens its ports, watches the cluster, and drains its streams at the end."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import signal
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, generate_latest

from controller.api.kinds import DELIVERED, POD
from controller.kube.client import Cluster
from controller.kube.events import ApiServerEvents
from controller.kube.reflector import Reflector, WatchScope
from controller.kube.reviews import ClusterReviews
from controller.proxy.access.access import VERDICT_SECONDS, AccessReviews
from controller.proxy.metrics import ProxyMetrics
from controller.proxy.receipts import fleet
from controller.proxy.receipts.metrics import ReceiptMetrics, served_after
from controller.proxy.receipts.pods import PodUids
from controller.proxy.receipts.recording import Recorder, Schedule
from controller.proxy.server import Proxy, ProxyOptions, ReceiptPorts
from controller.proxy.watch import CatalogSink
from controller.runtime.clock import now, unix_time
from controller.runtime.events import event_of
from controller.runtime.objects.watch_health import WatchHealth
from controller.runtime.process import management
from controller.runtime.process.lasting import forever
from controller.runtime.process.metrics import ProcessMetrics
from controller.runtime.reconciling.queue import KeyedQueue
from controller.runtime.tenancy.limits import Limits, NamespaceLimits
from controller.wiring.tenancy.quota_overrides import overridden
from controller.wiring.tenancy.quotas import QuotaMetrics
from evaluator.http.offload import Offload
from evaluator.http.routes import merged
from evaluator.http.server.limits import MANAGEMENT
from evaluator.http.server.limits import Limits as PortLimits
from evaluator.http.server.listener import Listener
from evaluator.http.server.tls import TlsFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.settings import ProxySettings

LIMITS: Final = PortLimits(body_bytes=65_536, header_bytes=65_536, idle_seconds=120.0)
"""Subscribers ask for little. A silent one is asked for a sign of life after a minute, and gone after two."""
_NOTICE_SECONDS: Final = 5.0
_SHED_SECONDS: Final = 0.1
_MANAGEMENT_DRAIN: Final = 2.0


@dataclass
class ProxyProcess:
    """One replica."""

    settings: ProxySettings
    events: ApiServerEvents
    proxy: Proxy
    reflectors: list[Reflector]
    registry: CollectorRegistry
    sync: Listener
    pods: list[Reflector]
    recorder: Recorder
    sync_port: int = field(default=0, init=False)
    management_port: int = field(default=0, init=False)
    draining: bool = field(default=False, init=False)

    def readiness(self) -> dict[str, Any]:
        """Ready once every kind was listed, and without an API server, too; says how old its view is."""
        ages = [age for each in self.reflectors if (age := each.age()) is not None]
        return {
            "ready": self.proxy.deliveries.synced and not self.draining,
            "draining": self.draining,
            "ageSeconds": round(max(ages), 1) if ages else None,
            "streams": self.proxy.hub.streams,
            "watches": [
                {
                    "kind": each.view.type.kind,
                    "namespace": each.view.namespace,
                    "connected": each.connected,
                    "fault": each.fault,
                    "ageSeconds": None if (age := each.age()) is None else round(age, 1),
                }
                for each in self.reflectors
            ],
        }

    async def work(self) -> None:
        """Watch objects, record receipts, post Events, and check subscribers' rights, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in (*self.reflectors, *self.pods):
                group.create_task(reflector.run())
            for turn in (self.recorder.run, self._notice, self._revoke):
                group.create_task(forever(turn))

    async def drain(self) -> None:
        """Send subscribers elsewhere: no longer ready, then no new ones, then a few at a time."""
        self.draining = True
        await asyncio.sleep(self.settings.drain_delay)
        seconds = self.settings.drain_seconds
        service = self.proxy.service
        slices = max(1, int(seconds / _SHED_SECONDS))
        each = -(-self.proxy.hub.streams // slices)
        leaving = asyncio.create_task(self.sync.drain(seconds + 1.0))
        for _ in range(slices):
            if not service.shed(each):
                break
            await asyncio.sleep(_SHED_SECONDS)
        service.close()
        await leaving

    async def _notice(self) -> None:
        await asyncio.sleep(_NOTICE_SECONDS)
        if self.proxy.deliveries.synced:
            for resource, occurrence in self.proxy.notices.take():
                self.events.accept(event_of(resource, occurrence, now()))

    async def _revoke(self) -> None:
        await asyncio.sleep(VERDICT_SECONDS)
        await self.proxy.end_revoked()


@contextlib.asynccontextmanager
async def open_proxy(settings: ProxySettings) -> AsyncIterator[ProxyProcess]:
    """Ports open and parts joined; `work` does the rest. Raises OSError for a port or a certificate."""
    loop = asyncio.get_running_loop()
    given = (settings.tls_cert, settings.tls_key, settings.tls_client_ca or None)
    tls = await asyncio.to_thread(TlsFiles, *given) if settings.tls_cert else None
    async with contextlib.AsyncExitStack() as stack:
        cluster = await Cluster.connect(settings.kubeconfig or None)
        stack.push_async_callback(cluster.close)
        limits = Limits(NamespaceLimits(streams=settings.quota_streams, receipts=settings.quota_receipts))
        process = _joined(settings, limits, cluster, loop)
        metrics = ProcessMetrics()
        process.registry.register(metrics)
        metrics.lag.start()
        stack.callback(metrics.lag.stop)
        await stack.enter_async_context(process.events.posting())
        following = overridden(limits, cluster.api, settings.namespace, settings.quotas, process.events)
        await stack.enter_async_context(following)
        stack.callback(process.proxy.close)
        offload = Offload()
        stack.callback(offload.close)
        managed = management.routes(process.readiness, partial(generate_latest, process.registry), offload)
        manager = Listener(
            merged(managed, fleet.routes(process.proxy.receipts, offload)),
            MANAGEMENT,
            name="management",
        )
        process.management_port = await manager.start(
            settings.management_host or settings.host, settings.management_port
        )
        stack.push_async_callback(manager.drain, _MANAGEMENT_DRAIN)
        process.sync_port = await process.sync.start(settings.host, settings.sync_port, tls=tls)
        for each in (manager, process.sync):
            metrics.ports.port(each.name, each)
        yield process


def _joined(
    settings: ProxySettings, limits: Limits, cluster: Cluster, loop: asyncio.AbstractEventLoop
) -> ProxyProcess:
    namespaces = tuple(settings.namespaces or ("",))
    registry = CollectorRegistry(auto_describe=False)
    schedule = Schedule(KeyedQueue(loop.time, random.random), loop.time)
    pods = PodUids(namespaces)
    proxy = Proxy(
        _options(settings, limits),
        AccessReviews(ClusterReviews(cluster, settings.auth_audiences), clock=loop.time, unix_time=unix_time),
        ReceiptPorts(pods, unix_time, schedule.changed, served_after(registry).observe),
        loop,
    )
    pods.gone = proxy.receipts.pod_gone
    sink = CatalogSink(proxy.deliveries, namespaces)
    reflectors = [
        Reflector(cluster.api, WatchScope(type_, each), sink) for type_ in DELIVERED for each in namespaces
    ]
    pod_reflectors = [Reflector(cluster.api, WatchScope(POD, each), pods) for each in namespaces]
    # Another process of the same pod is another proxy: what the first one knew goes with its Lease.
    identity = f"{settings.identity}-{secrets.token_hex(3)}"
    recorder = Recorder(proxy.receipts, cluster, identity, settings.namespace, now, schedule)
    sync = Listener(proxy.routes(), _port_limits(settings), name="sync")
    watches = WatchHealth(loop.time)
    for each in reflectors:
        watches.follow(each.view.type.plural, each.view.path, each)
    registry.register(ProxyMetrics(proxy, watches, lambda: sync.connections))
    registry.register(QuotaMetrics(limits, proxy.used))
    registry.register(ReceiptMetrics(proxy.receipts, lambda: recorder.writes))
    events = ApiServerEvents(cluster.api, registry)
    return ProxyProcess(settings, events, proxy, reflectors, registry, sync, pod_reflectors, recorder)


def _port_limits(settings: ProxySettings) -> PortLimits:
    """The limits of the sync port."""
    return replace(
        LIMITS,
        connections=settings.max_connections,
        connections_per_host=settings.max_connections_per_host,
        buffered_bytes=settings.max_buffered_bytes,
    )


def _options(settings: ProxySettings, limits: Limits) -> ProxyOptions:
    return ProxyOptions(
        context=settings.context,
        auth=settings.auth,
        max_streams=settings.max_streams,
        max_streams_per_host=settings.max_streams_per_host,
        stream_seconds=settings.stream_seconds,
        limits=limits,
    )


async def run_proxy(settings: ProxySettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends it at once. Raises OSError as `open_proxy`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with open_proxy(settings) as process:
        say(f"listening: sync {process.sync_port}, management {process.management_port}")
        working = asyncio.create_task(process.work())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        stopping.cancel()
        # Keep watching while draining: remaining subscribers still receive changes.
        await process.drain()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
        await process.recorder.close()
    if not working.cancelled():
        working.result()
