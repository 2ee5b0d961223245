"""Cluster mode: watch streams, loops and servers joined in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
import time
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from controller.api import alert, configuration, flagset, flagsource, provider, receiver
from controller.api.kinds import CONFIG_MAP, POD, WATCHED
from controller.api.meta import ObjectKey, Resource
from controller.artifacts import server as artifact_server
from controller.artifacts.server import ArtifactServer
from controller.artifacts.storages import Storages
from controller.configurations.dead_proxies import ProxyFollower
from controller.configurations.live_proxies import LiveProxies
from controller.configurations.reconciler import ConfigurationReconciler
from controller.delivery.claims import Claims
from controller.flagsets.build import build
from controller.flagsets.fetch import ArtifactReader
from controller.flagsets.inputs import InputReader
from controller.flagsets.reconciler import FlagSetReconciler
from controller.flagsets.stage import BY_CONFIG_MAP
from controller.flagsets.stage import BY_SECRET as FLAG_SET_BY_SECRET
from controller.handlers.kopf_thread import KopfThread
from controller.kube.accounts import Accounts
from controller.kube.client import Cluster
from controller.kube.events import ApiServerEvents
from controller.kube.lease import Lease
from controller.kube.secret_watches import SecretWatches
from controller.notifications.alert_reconciler import FlagAlertReconciler
from controller.notifications.stage import BY_SECRET as PROVIDER_BY_SECRET
from controller.receiver.endpoints import Endpoints
from controller.receiver.reconciler import FlagReceiverReconciler
from controller.receiver.server import LIMITS, Receiver
from controller.receiver.stage import BY_SECRET as RECEIVER_BY_SECRET
from controller.runtime import management
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.collection import Collector
from controller.runtime.dispatch import Dispatcher
from controller.runtime.leadership import Leadership, Role
from controller.runtime.loop import Loop, Outputs, Reconciler
from controller.runtime.metrics import Metrics
from controller.runtime.queue import KeyedQueue
from controller.runtime.watch_health import WatchHealth
from controller.runtime.watches import indexes_of
from controller.sources.export import Exporter
from controller.sources.freshness import LookSchedule
from controller.sources.leftovers import Leftovers
from controller.sources.pending import PendingPushes
from controller.sources.reconciler import SourceReconciler
from controller.sources.stage import BY_SECRET as SOURCE_BY_SECRET
from controller.wiring.admission import injector, open_admission
from controller.wiring.notifying import open_notifying
from controller.wiring.providers import providers_of
from controller.wiring.proxy_certificates import keeper_of
from controller.wiring.quotas import flag_set_quotas, source_quotas
from controller.wiring.replica import LEADER_LABEL, STAGES, Controller, Ports, readiness
from controller.wiring.tokens import TokenFile
from evaluator.http.server.limits import MANAGEMENT
from evaluator.http.server.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from controller.runtime.cache import Change
    from controller.settings import ControllerSettings
    from evaluator.http.routes import Routes

log = logging.getLogger(__name__)

SOURCES_AT_ONCE: Final = 128
"""A source whose server does not answer keeps its place for its whole timeout; the git programs at a time are
bounded elsewhere.
"""
_DRAIN: Final = 2.0


@contextlib.asynccontextmanager
async def open_controller(
    settings: ControllerSettings, objects: Cache, health: WatchHealth
) -> AsyncIterator[Controller]:
    """Ports open and parts joined; `work` does the rest. Raises OSError where a port is taken,
    InvalidSettingError, ConfigException.
    """
    clock = asyncio.get_running_loop().time
    queues: dict[str, KeyedQueue[ObjectKey]] = {
        stage.type.kind: queue_of(stage.type.kind, settings.workers) for stage in STAGES
    }
    role = Role()
    metrics = Metrics(objects, queues, now, health, role)
    async with contextlib.AsyncExitStack() as stack:
        cluster, accounts, events = await _connected(stack, settings, metrics)
        notifying = await open_notifying(
            stack,
            settings,
            accounts,
            objects,
            metrics,
            wake=lambda key, delay: queues[key.kind].put(key, delay),
        )
        tokens = await asyncio.to_thread(TokenFile, settings.artifact_tokens_file)
        stack.callback(asyncio.create_task(tokens.follow()).cancel)
        bound = stack.enter_context(_bound(settings.host, settings.artifact_port))
        address = _address(settings, bound.getsockname()[1])
        storages = Storages(settings.storage_path / "artifacts", f"http://{address}")
        stack.callback(storages.close)
        providers = providers_of(settings, accounts.secret)
        for each in providers.values():
            stack.push_async_callback(each.close)
        collector = Collector(objects, cluster, WATCHED, settings.namespaces, health, clock)
        proxies = ProxyFollower(LiveProxies(), objects, cluster, settings.namespace, clock)
        referred = _watches(cluster, objects, health)
        claims, endpoints, pending = Claims(), Endpoints(), PendingPushes()
        reconcilers: dict[str, Reconciler] = {
            flagsource.KIND: SourceReconciler(
                providers,
                storages,
                pending,
                random.random,
                LookSchedule(),
                *source_quotas(settings, objects),
                Exporter(objects, accounts.client),
            ),
            flagset.KIND: FlagSetReconciler(
                objects,
                _reader(settings, storages, tokens, address),
                accounts.client,
                _applied(objects),
                random.random,
                settings.provenance,
                InputReader(accounts.secret, accounts.config_map),
                build,
                *flag_set_quotas(settings, objects),
            ),
            configuration.KIND: ConfigurationReconciler(objects, claims, proxies.proxies),
            configuration.FLAG_KIND: ConfigurationReconciler(objects, claims),
            receiver.KIND: FlagReceiverReconciler(accounts.secret, endpoints),
            provider.KIND: notifying.providers,
            alert.KIND: FlagAlertReconciler(objects, notifying.outbox.complaint),
        }
        loops = {
            kind: Loop(
                reconcilers[kind],
                objects,
                Outputs(cluster, metrics, (events, *notifying.sinks)),
                now=now,
                queue=queues[kind],
            )
            for kind in (stage.type.kind for stage in STAGES)
        }
        dispatcher = _dispatcher(
            objects,
            loops,
            proxies.changed,
            _rivals(claims),
            *(each.changed for each in referred),
            notifying.outbox.changed,
        )
        webhooks = Receiver(
            endpoints,
            objects,
            expect=pending.expect,
            wake=dispatcher.wake,
            now=now,
            clock=clock,
            leading=lambda: role.leading,
            received=metrics.received,
        )
        proxy, injecting = (
            keeper_of(settings, cluster, role),
            injector(settings, objects, lambda: collector.synced, metrics.reviewed),
        )
        admission = await stack.enter_async_context(open_admission(settings, cluster, role, injecting))
        managed = management.routes(
            lambda: readiness(collector, role, health, admission, proxy), metrics.text
        )
        served = ArtifactServer(storages, lambda: tokens.tokens).routes()
        ports = await _listen(stack, settings, managed, bound, served, webhooks.routes())
        yield Controller(
            Ports(*ports, admission.port),
            collector,
            Leadership(role, _election(settings, cluster), _label(settings, cluster)),
            dispatcher,
            loops,
            Leftovers(objects, storages, [each.sweep for each in providers.values()], now),
            proxies,
            *referred,
            admission,
            proxy,
            notifying.deliverer,
        )


def _dispatcher(
    objects: Cache, loops: dict[str, Loop], *followers: Callable[[Change], Iterable[ObjectKey]]
) -> Dispatcher:
    """What is told of every change of an object."""
    dispatcher = Dispatcher(objects, STAGES, loops, followers)
    objects.on_change = dispatcher.changed
    return dispatcher


async def _connected(
    stack: contextlib.AsyncExitStack, settings: ControllerSettings, metrics: Metrics
) -> tuple[Cluster, Accounts, ApiServerEvents]:
    """The client, those that act for objects, and what posts Events, on a loop whose lag is measured."""
    metrics.lag.start()
    stack.callback(metrics.lag.stop)
    cluster = await Cluster.connect(settings.kubeconfig or None, wrote=metrics.wrote)
    stack.push_async_callback(cluster.close)
    events = ApiServerEvents(cluster.api, metrics.registry, wrote=metrics.wrote)
    await stack.enter_async_context(events.posting())
    accounts = Accounts(cluster, settings.default_service_account, settings.require_secret_hosts)
    return cluster, accounts, events


def queue_of(kind: str, workers: int) -> KeyedQueue[ObjectKey]:
    """Of one kind's keys; half of its places are one namespace's at most, and each finds one."""
    places = SOURCES_AT_ONCE if kind == flagsource.KIND else 2 * workers
    clock = asyncio.get_running_loop().time
    return KeyedQueue(clock, random.random, places=places, firsts=places, group=attrgetter("namespace"))


async def _listen(
    stack: contextlib.AsyncExitStack,
    settings: ControllerSettings,
    managed: Routes,
    bound: socket.socket,
    artifacts: Routes,
    webhooks: Routes,
) -> tuple[int, int, int]:
    """Open three ports; artifacts are served on `bound`."""
    manager = Listener(managed, MANAGEMENT, name="management")
    management_port = await manager.start(settings.host, settings.management_port)
    stack.push_async_callback(manager.drain, _DRAIN)
    server = Listener(artifacts, artifact_server.LIMITS, name="artifacts")
    await server.start_on(bound)
    stack.push_async_callback(server.drain, _DRAIN)
    receiving = Listener(webhooks, LIMITS, name="receiver")
    receiver_port = await receiving.start(settings.host, settings.receiver_port)
    stack.push_async_callback(receiving.drain, _DRAIN)
    return management_port, bound.getsockname()[1], receiver_port


def _watches(cluster: Cluster, objects: Cache, health: WatchHealth) -> tuple[SecretWatches, SecretWatches]:
    """Of Secrets and of ConfigMaps."""
    clock = asyncio.get_running_loop().time
    indexes = (SOURCE_BY_SECRET, RECEIVER_BY_SECRET, PROVIDER_BY_SECRET, FLAG_SET_BY_SECRET)
    start = partial(SecretWatches, cluster.api, objects, health=health, clock=clock, random=random.random)
    return start(indexes), start((BY_CONFIG_MAP,), type_=CONFIG_MAP)


def _bound(host: str, port: int) -> socket.socket:
    """A socket whose port is known before anybody is answered: artifacts' URLs name it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _reader(
    settings: ControllerSettings, storages: Storages, tokens: TokenFile, address: str
) -> ArtifactReader:
    def local(path: str) -> bytes | None:
        found = storages.read(path)
        return None if found is None else found[0]

    # Our own address, too: a replica that does not hold an artifact asks for it.
    return ArtifactReader(local, settings.artifact_hosts, own=address, token=tokens.first)


def _applied(objects: Cache) -> Callable[[dict[str, Any]], None]:
    """What we wrote is known before its event comes."""

    def learn(body: dict[str, Any]) -> None:
        objects.learn(Resource.of(body))

    return learn


def _rivals(claims: Claims) -> Callable[[Change], Iterable[ObjectKey]]:
    """Objects that claim the same name as one that changed."""
    return lambda change: claims.follow(change.before, change.after).rivals


def _election(settings: ControllerSettings, cluster: Cluster) -> Lease | None:
    if not settings.leader_election:
        return None
    return Lease(cluster, settings.namespace, settings.lease_name, settings.identity)


def _label(settings: ControllerSettings, cluster: Cluster) -> Callable[[bool], Awaitable[None]] | None:
    """Labels our own pod: the Services of the artifact server and the receiver select the leader by it."""
    if not settings.pod:
        return None

    pod = ObjectKey(POD.kind, settings.namespace, settings.pod)

    def label(leading: bool) -> Awaitable[None]:
        return cluster.patch_metadata(POD, pod, labels={LEADER_LABEL: "true" if leading else None})

    return label


def _address(settings: ControllerSettings, port: int) -> str:
    """Where others reach the artifact server: host and port."""
    service = f"flagstaff-artifacts.{settings.namespace}.svc.cluster.local.:{port}"
    return settings.artifact_address or service


@contextlib.asynccontextmanager
async def working(
    settings: ControllerSettings,
    objects: Cache,
    health: WatchHealth,
    say: Callable[[str], None],
    ended: Callable[[], None],
) -> AsyncIterator[Controller]:
    """A controller that works for as long as the block lasts; `ended` is called should it stop before. Raises
    OSError where a port is taken.
    """
    async with open_controller(settings, objects, health) as controller:
        ports = controller.ports
        say(
            f"listening: management {ports.management}, artifacts {ports.artifacts}, "
            f"receiver {ports.receiver}, admission {ports.admission}"
        )
        task = asyncio.create_task(controller.work())
        task.add_done_callback(lambda _: ended())
        try:
            yield controller
        finally:
            by_itself = task.done()
            task.cancel()
            (left,) = await asyncio.gather(task, return_exceptions=True)
        if by_itself and not task.cancelled():
            task.result()
        elif isinstance(left, Exception):
            # We were asked to stop, and did: what went wrong on the way out is no failure of ours.
            log.warning("the work did not end cleanly", exc_info=left)


async def run_controller(settings: ControllerSettings, say: Callable[[str], None]) -> None:
    """Watch and work until SIGTERM or SIGINT; a second one ends it at once. Raises OSError where a port is
    taken.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    objects, health = Cache(indexes_of(STAGES)), WatchHealth(time.monotonic)
    async with working(settings, objects, health, say, stop.set) as controller:
        watches = KopfThread(
            objects,
            WATCHED,
            controller.relisted,
            health,
            controller.collector.unwatched,
            settings.namespaces,
        )
        watching = asyncio.create_task(watches.run())
        await stop.wait()
        for number in signals:
            loop.remove_signal_handler(number)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
