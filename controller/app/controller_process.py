"""Cluster mode: watch streams, loops and servers joined in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import EVENT, WATCHED
from controller.app.certificate_keepers import certificate_rotations
from controller.app.controller_replica import Controller, Ports, leadership_of, readiness
from controller.app.namespace_quotas import QuotaMetrics, artifact_usage, limits_of
from controller.app.notifications import open_notifications
from controller.app.pod_work import pod_work_of
from controller.app.ports import artifact_address, bound_socket, listen
from controller.app.reconcilers import STAGES, Shared, open_providers, queue_of, reconcilers_of, usages_of
from controller.app.referenced_objects import reference_watches
from controller.app.rollout_checks import open_rollout_checks
from controller.app.token_file import TokenFile
from controller.artifacts.artifact_server import ArtifactServer
from controller.artifacts.storages import Storages
from controller.configurations.live_proxies import LiveProxies, ProxyFollower
from controller.delivery.claims import Claims
from controller.events.receiver.webhook_endpoints import Endpoints
from controller.events.receiver.webhook_server import Receiver
from controller.flagsets.building.limited_build import MODULES
from controller.kube.accounts import Accounts
from controller.kube.client import Cluster
from controller.kube.event_sink import ApiServerEvents
from controller.kube.kopf.kopf_thread import KopfThread
from controller.kube.reflector import Reflector, WatchScope
from controller.pods.admission.reported_refusals import FIELDS, ReportedRefusals
from controller.runtime.clock import now
from controller.runtime.objects.cache import Cache
from controller.runtime.objects.collection import Collector
from controller.runtime.objects.watch_health import WatchHealth
from controller.runtime.process import management
from controller.runtime.process.foreign_tasks import HELPERS, HelperTasks
from controller.runtime.process.helpers import Helpers
from controller.runtime.process.leadership import Role
from controller.runtime.process.metrics import Metrics
from controller.runtime.process.stop_signals import end_at_signals, stop_at_signals
from controller.runtime.reconciling.loop import Loop, Outputs
from controller.runtime.reconciling.watches import Dispatcher, indexes_of
from controller.runtime.tenancy.places import Places
from controller.sources.files.leftovers import Leftovers
from controller.sources.freshness import PendingPushes
from evaluator.host.threads import share_threads
from evaluator.http.offload import Offload

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterable

    from controller.api.objects.meta import ObjectKey
    from controller.app.settings.process_settings import ControllerSettings
    from controller.runtime.event import EventSink
    from controller.runtime.reconciling.queue import KeyedQueue
    from controller.runtime.tenancy.limits import NamespaceLimits

log = logging.getLogger(__name__)

_READERS: Final = ("controller.configurations.remote_set", "controller.configurations.validation")
"""What reads remote flags and the content of objects."""


@dataclass(frozen=True, slots=True)
class _Base:
    """The shared parts of one replica."""

    settings: ControllerSettings
    objects: Cache
    health: WatchHealth
    role: Role
    queues: dict[str, KeyedQueue[ObjectKey]]
    metrics: Metrics
    connection: Cluster
    """The client of what a standby does, too."""
    cluster: Cluster
    """The client of the leader's work: it writes nothing once this replica leads no longer."""
    accounts: Accounts
    """The clients that act for objects."""
    events: ApiServerEvents
    limits: NamespaceLimits
    collector: Collector


@contextlib.asynccontextmanager
async def open_controller(
    settings: ControllerSettings, objects: Cache, health: WatchHealth
) -> AsyncIterator[Controller]:
    """Ports open and parts joined; `work` does the rest. Raises OSError where a port is taken,
    InvalidSettingError, ConfigException.
    """
    share_threads()
    clock = asyncio.get_running_loop().time
    async with contextlib.AsyncExitStack() as stack:
        base = await _connect(stack, settings, objects, health)
        cluster, role, metrics = base.cluster, base.role, base.metrics
        notifying = await open_notifications(
            stack, settings, base.accounts, objects, metrics,
            wake=lambda key, delay: base.queues[key.kind].put(key, delay),
        )  # fmt: skip
        shared, bound = await _open_shared(stack, base)
        providers = open_providers(stack, settings, base.limits, base.accounts.secret, cluster.server)
        usages = {**artifact_usage(objects), **usages_of(providers.backends.values())}
        metrics.registry.register(QuotaMetrics(base.limits, usages))
        sweeps = [provider.sweep for provider in providers.backends.values()]
        proxies = ProxyFollower(LiveProxies(), objects, cluster, settings.namespace, clock)
        asked = open_rollout_checks(stack, settings, base.accounts, objects, metrics.count_check)
        watches = reference_watches(cluster, objects, health)
        outputs = Outputs(cluster, metrics, (base.events, *notifying.sinks))
        reconcilers = reconcilers_of(shared, providers, proxies.proxies, notifying, asked)
        loops = {
            kind: Loop(reconciler, objects, outputs, now=now, queue=base.queues[kind])
            for kind, reconciler in reconcilers.items()
        }
        pods = pod_work_of(settings, base.accounts, objects, outputs.sinks, health)
        certificates = certificate_rotations(settings, base.connection, role)
        followers = (
            *pods.followers,
            proxies.on_change,
            # Objects that claim the same name as one that changed.
            lambda change: shared.claims.follow(change.before, change.after).rivals,
            *(watch.on_change for watch in watches),
            notifying.outbox.on_change,
        )
        dispatcher = Dispatcher(objects, STAGES, loops, followers)
        state = partial(readiness, base.collector, role, health, certificates)
        ports = await _open_ports(stack, base, shared, bound, dispatcher, state)
        yield Controller(
            Ports(*ports),
            base.collector,
            leadership_of(settings, base.connection, role),
            dispatcher,
            loops,
            Leftovers(objects, shared.storages.keep, sweeps, now),
            proxies,
            watches,
            certificates,
            _refused_pods(base, notifying.sinks),
            notifying.deliverer,
            pods,
        )


async def _connect(
    stack: contextlib.AsyncExitStack, settings: ControllerSettings, objects: Cache, health: WatchHealth
) -> _Base:
    """The client and what needs no more than it: what acts for objects and posts Events, and the limits that
    are followed, on a loop whose lag is measured.
    """
    role = Role()
    queues = {stage.type.kind: queue_of(stage.type.kind, settings.workers) for stage in STAGES}
    metrics = Metrics(objects, queues, now, health, role)
    metrics.lag.start()
    stack.callback(metrics.lag.stop)
    connection = await Cluster.connect(settings.kubeconfig or None, wrote=metrics.count_write)
    stack.push_async_callback(connection.close)
    cluster = connection.with_leadership(role)
    events = ApiServerEvents(cluster.api, metrics.registry, wrote=metrics.count_write)
    await stack.enter_async_context(events.post_in_background())
    accounts = Accounts(cluster, settings.default_service_account, settings.require_secret_hosts)
    limits = limits_of(settings)
    collector = Collector(objects, cluster, WATCHED, settings.namespaces)
    return _Base(
        settings,
        objects,
        health,
        role,
        queues,
        metrics,
        connection,
        cluster,
        accounts,
        events,
        limits,
        collector,
    )


def _refused_pods(base: _Base, sinks: Iterable[EventSink]) -> tuple[Reflector, ...]:
    """The watches of Events by which admission reports refused pods, which alerts are about, too."""
    reported = ReportedRefusals(base.objects, sinks, now, asyncio.get_running_loop().time)
    scopes = [WatchScope(EVENT, namespace, fields=FIELDS) for namespace in base.settings.namespaces or ("",)]
    return tuple(Reflector(base.cluster.api, scope, reported) for scope in scopes)


async def _open_ports(
    stack: contextlib.AsyncExitStack,
    base: _Base,
    shared: Shared,
    bound: socket.socket,
    dispatcher: Dispatcher,
    state: Callable[[], dict[str, Any]],
) -> tuple[int, int, int]:
    """Those of management, artifacts and the receiver; `state` is what /readyz answers."""
    webhooks = Receiver(
        shared.endpoints,
        base.objects,
        expect=shared.pending.expect,
        wake=dispatcher.wake,
        now=now,
        clock=asyncio.get_running_loop().time,
        role=base.role,
        received=base.metrics.count_webhook,
    )
    offload = Offload()
    stack.callback(offload.close)
    managed = management.routes(state, base.metrics.text, offload)
    served = ArtifactServer(shared.storages, lambda: shared.tokens.tokens).routes()
    return await listen(stack, base.settings, base.metrics.ports, bound, (managed, served, webhooks.routes()))


async def _open_shared(stack: contextlib.AsyncExitStack, base: _Base) -> tuple[Shared, socket.socket]:
    """And the socket that artifacts are served on."""
    settings = base.settings
    tokens = await asyncio.to_thread(TokenFile, settings.artifact_tokens_file)
    stack.callback(asyncio.create_task(tokens.follow()).cancel)
    bound = stack.enter_context(bound_socket(settings.host, settings.artifact_port))
    address = artifact_address(settings, bound.getsockname()[1])
    storages = Storages(settings.storage_path / "artifacts", f"http://{address}")
    stack.callback(storages.close)
    helpers = Helpers((*MODULES, *_READERS))
    stack.push_async_callback(helpers.close)
    tasks = HelperTasks(helpers, Places(HELPERS, resource="foreign content"))
    known = Claims(), Endpoints(), PendingPushes(), tasks
    shared = Shared(settings, base.objects, base.limits, base.accounts, storages, address, tokens, *known)
    return shared, bound


@contextlib.asynccontextmanager
async def start_controller(
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
            f"receiver {ports.receiver}"
        )

        def work_ended(_: asyncio.Task[None]) -> None:
            ended()

        task = asyncio.create_task(controller.work())
        task.add_done_callback(work_ended)
        try:
            yield controller
        finally:
            by_itself = task.done()
            task.remove_done_callback(work_ended)
            task.cancel()
            (left,) = await asyncio.gather(task, return_exceptions=True)
        if by_itself and not task.cancelled():
            task.result()
        elif isinstance(left, Exception):
            # The stop was requested: errors while stopping are no failure.
            log.warning("the work did not end cleanly", exc_info=left)


@contextlib.asynccontextmanager
async def watch_and_work(
    settings: ControllerSettings, say: Callable[[str], None], ended: Callable[[], None]
) -> AsyncIterator[None]:
    """A controller that watches and works for as long as the block lasts, the start of `flagstaff controller`
    and `kopf run` alike; `ended` is called should it stop before. Raises OSError where a port is taken.
    """
    objects, health = Cache(indexes_of(STAGES)), WatchHealth(time.monotonic)
    async with start_controller(settings, objects, health, say, ended) as controller:
        kopf = KopfThread(objects, WATCHED, controller.on_relist, health, settings.namespaces)
        task = asyncio.create_task(kopf.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def run_controller(settings: ControllerSettings, say: Callable[[str], None]) -> None:
    """Watch and work until SIGTERM or SIGINT; a second one ends it at once. Raises OSError where a port is
    taken.
    """
    stop = stop_at_signals()
    async with watch_and_work(settings, say, stop.set):
        await stop.wait()
        end_at_signals()
