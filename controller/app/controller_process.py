"""Cluster mode: watch streams, loops and servers joined in one process, and the parts of one replica."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import CONFIG_MAP, EVENT, NAMESPACE, POD, SECRET, WATCHED, WORKLOADS
from controller.api.meta import ObjectKey
from controller.app.namespace_limits import QuotaMetrics, artifact_usage, limits_of
from controller.app.pod_work import PodWork, pod_work_of
from controller.app.process_frame import ProcessFrame, listening, open_frame
from controller.app.pull_request_plans import PullRequestPlanner
from controller.app.reconcilers import (
    STAGES,
    Notifying,
    Shared,
    TokenFile,
    open_clusters,
    open_notifications,
    open_providers,
    open_rollout_checks,
    queue_of,
    reconcilers_of,
    usages_of,
)
from controller.artifacts import artifact_server
from controller.artifacts.artifact_server import ArtifactServer
from controller.artifacts.storage import Storages
from controller.configurations.live_proxies import LiveProxies, ProxyFollower
from controller.configurations.stage import BY_SECRET as CONFIGURATION_BY_SECRET
from controller.delivery.claims import ClaimIndex
from controller.events.alert_stage import BY_SECRET as PROVIDER_BY_SECRET
from controller.events.alert_stage import SELECTING
from controller.events.receiver_stage import BY_SECRET as RECEIVER_BY_SECRET
from controller.events.webhook_server import LIMITS, Endpoints, Receiver
from controller.flagsets.limited_build import MODULES
from controller.flagsets.stage import BY_CONFIG_MAP
from controller.flagsets.stage import BY_SECRET as FLAG_SET_BY_SECRET
from controller.kube.adapters import AdmissionObjects, ProxyCertificates
from controller.kube.client import Accounts, Cluster
from controller.kube.kopf_watches import KindLists, KopfEngine
from controller.kube.lease import Lease
from controller.kube.reflector import ReferenceWatches, Reflector, WatchScope, reflectors_of
from controller.pods.certificates import CertificateRotation
from controller.pods.flagd_objects import MANAGED_BY, OURS
from controller.pods.refusals import FIELDS, ReportedRefusals
from controller.pods.stage import BY_SOURCE
from controller.runtime.cache import Cache
from controller.runtime.clock import now
from controller.runtime.helpers import HELPERS, Helpers, HelperTasks
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.limits import NamespaceLimits, Places
from controller.runtime.loop import Loop, Outputs
from controller.runtime.metrics import ControllerMetrics, ShardMetrics
from controller.runtime.process import Leadership, Role, forever
from controller.runtime.shards import LEASE_LABELS, ShardFollower
from controller.runtime.watch_health import WatchHealth
from controller.runtime.watches import Dispatcher, indexes_of
from controller.sources.freshness import PendingPushes
from controller.sources.reconciler import Leftovers
from controller.sources.stage import BY_SECRET as SOURCE_BY_SECRET
from evaluator.host.signals import end_at_signals, stop_at_signals
from evaluator.http.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from controller.api.kind import ResourceType
    from controller.app.settings import ControllerSettings
    from controller.events.deliverer import Deliverer
    from controller.events.plan_poster import PlanPoster
    from controller.kube.event_sink import ApiServerEvents
    from controller.runtime.event import EventSink
    from controller.runtime.queue import KeyedQueue
    from evaluator.http.routes import Routes


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket, whose port is part of artifacts' URLs before it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


async def listen(
    frame: ProcessFrame,
    settings: ControllerSettings,
    bound: socket.socket,
    state: Callable[[], dict[str, Any]],
    routes: tuple[Routes, Routes],
) -> dict[str, int]:
    """Open the ports of management, whose /readyz answers `state`, and of artifacts and the receiver, which
    have these routes; artifacts are served on `bound`. Raises OSError where a port is taken.
    """
    artifacts, webhooks = routes
    management = await frame.manage(state)
    server = Listener(artifacts, artifact_server.LIMITS, name="artifacts")
    await server.start_on(bound)
    frame.follow(server)
    receiving = Listener(webhooks, LIMITS, name="receiver")
    receiver = await frame.listen(receiving, settings.receiver_host, settings.receiver_port)
    return {"management": management, "artifacts": bound.getsockname()[1], "receiver": receiver}


def certificate_rotations(
    settings: ControllerSettings, cluster: Cluster, role: Role
) -> dict[str, CertificateRotation]:
    """By the server that they are for: admission, and the proxy where the settings ask for it."""
    place = settings.namespace
    service = f"flagstaff-admission.{place}.svc"
    names = [service, f"{service}.cluster.local", "localhost", "127.0.0.1"]
    made = {"admission": CertificateRotation("admission", AdmissionObjects(cluster, place), names, role)}
    if settings.proxy_certificates:
        store = ProxyCertificates(cluster, place, settings.proxy_ca, settings.namespaces)
        made["proxy"] = CertificateRotation("the proxy", store, _proxy_names(settings), role)
    return made


def _proxy_names(settings: ControllerSettings) -> list[str]:
    """The names in the certificate: those of the Service, those that clients use, and a forwarded port."""
    service = f"flagstaff-proxy.{settings.namespace}.svc"
    called = settings.proxy_address.rpartition(":")[0].strip("[]")
    return [*dict.fromkeys(filter(None, (service, f"{service}.cluster.local", called, "localhost")))]


_BY_SECRET = (
    SOURCE_BY_SECRET,
    RECEIVER_BY_SECRET,
    PROVIDER_BY_SECRET,
    FLAG_SET_BY_SECRET,
    CONFIGURATION_BY_SECRET,
)


_REFERRED: Final = (SECRET, CONFIG_MAP, NAMESPACE, *WORKLOADS)


def reference_watches(
    cluster: Cluster, informer: Informer, health: WatchHealth
) -> tuple[ReferenceWatches, ...]:
    """Those of Secrets, ConfigMaps and Namespaces, and of our own objects, which are watched in just the
    namespaces that hold a Flagd.
    """
    watch = partial(ReferenceWatches, cluster.api, informer, health=health)
    ours = f"{MANAGED_BY}={OURS}"
    return (
        watch(_BY_SECRET),
        watch((BY_CONFIG_MAP,), type_=CONFIG_MAP),
        watch((SELECTING,), type_=NAMESPACE, everywhere=True),
        *(watch((BY_SOURCE,), type_=workload, labels=ours) for workload in WORKLOADS),
    )


KINDS: Final = tuple(type_.kind for type_ in WATCHED)
"""What must be listed before any object can be called missing."""
_LEADER_LABEL: Final = "flagstaff.dev/leader"
"""Of the leader's pod, with the name of its Lease: the Services of the artifact server and the receiver
select it by this, so that several controllers may be in one namespace.
"""


@dataclass(frozen=True, slots=True)
class Undivided:
    """What is not divided among shards: the default controller does it, and a shard has nothing of it."""

    certificates: Mapping[str, CertificateRotation] = field(default_factory=dict)
    """By the server that they are for."""
    refused_pods: tuple[Reflector, ...] = ()
    posting: tuple[Deliverer, PlanPoster] | tuple[()] = ()
    pods: PodWork = field(default_factory=PodWork)


@dataclass(frozen=True, slots=True)
class Controller:
    """One replica: fills its cache from the start, and reconciles while it leads."""

    ports: Mapping[str, int]
    """Their numbers, by name."""
    informer: Informer
    engine: KopfEngine
    leadership: Leadership
    dispatcher: Dispatcher
    loops: Mapping[str, Loop]
    """By kind."""
    leftovers: Leftovers
    proxies: ProxyFollower
    watches: tuple[ReferenceWatches, ...]
    shards: ShardFollower | None
    """None where no label selects what is reconciled."""
    undivided: Undivided

    async def work(self) -> None:
        """Learn what is there, then lead whenever the election says so, until cancelled."""
        beside: list[Callable[[], Awaitable[None]]] = [watch.run for watch in self.watches]
        beside += [
            reflector.run for reflector in (*self.undivided.pods.watches, *self.undivided.refused_pods)
        ]
        beside += [keeper.check for keeper in self.undivided.certificates.values()]
        tasks = [asyncio.create_task(forever(self.engine.run))]
        try:
            await self.informer.wait_listed(KINDS, self.engine.lists.namespaces or ("",))
            tasks += [asyncio.create_task(forever(task)) for task in beside]
            await self.leadership.run(self._lead)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        await self.leftovers.remove_artifacts()
        posting, pods = self.undivided.posting, self.undivided.pods
        if posting:
            posting[0].begin()
        self.dispatcher.wake_all()
        async with asyncio.TaskGroup() as group:
            for loop in self.loops.values():
                group.create_task(loop.run())
            for poster in posting:
                group.create_task(poster.run())
            for kept in (pods.files, pods.readers, pods.proxy, pods.direct_sets):
                if kept is not None:
                    group.create_task(forever(kept.run))
            if self.shards is not None:
                group.create_task(forever(self.shards.poll))
            group.create_task(forever(self.proxies.poll))
            group.create_task(forever(self.leftovers.sweep))


def leadership_of(settings: ControllerSettings, cluster: Cluster, role: Role, address: str) -> Leadership:
    """By a Lease where the settings ask for an election, and with the label of our own pod. `address`: of the
    artifact server.
    """
    pod = ObjectKey(POD.kind, settings.namespace, settings.pod)
    said = settings.shard.annotations(address)
    election = Lease(cluster, settings.namespace, settings.lease, settings.identity, LEASE_LABELS, said)

    def label(leading: bool) -> Awaitable[None]:
        return cluster.patch_metadata(POD, pod, labels={_LEADER_LABEL: settings.lease if leading else None})

    return Leadership(role, election if settings.leader_election else None, label if settings.pod else None)


def readiness(
    has_listed: Callable[[], bool],
    role: Role,
    health: WatchHealth,
    certificates: Mapping[str, CertificateRotation],
) -> dict[str, Any]:
    """Ready once everything is known; a standby is ready, too. With the API server down it stays so, and says
    how old its view is.
    """
    reports = health.reports()
    ages = [report.age for report in reports if report.age is not None]
    return {
        "ready": has_listed(),
        "leader": role.leading,
        "certificates": {server: keeper.state for server, keeper in certificates.items()},
        "ageSeconds": round(max(ages), 1) if ages else None,
        "stale": [report.kind for report in reports if report.is_stale],
        "watches": [report.page() for report in reports],
    }


log = logging.getLogger(__name__)

_READERS: Final = (
    "controller.configurations.remote_providers",
    "controller.configurations.validation",
    "controller.flagsets.foreign_plans",
)
"""What reads remote flags, the content of objects, and pull requests."""


@dataclass(frozen=True, slots=True)
class _Base:
    """The shared parts of one replica."""

    settings: ControllerSettings
    informer: Informer
    health: WatchHealth
    role: Role
    queues: dict[str, KeyedQueue[ObjectKey]]
    metrics: ControllerMetrics
    connection: Cluster
    """The client of what a standby does, too."""
    cluster: Cluster
    """The client of the leader's work: it writes nothing once this replica leads no longer."""
    accounts: Accounts
    """The clients that act for objects."""
    events: ApiServerEvents
    limits: NamespaceLimits

    @property
    def objects(self) -> Cache:
        """What is known of the cluster."""
        return self.informer.store


@contextlib.asynccontextmanager
async def open_controller(settings: ControllerSettings) -> AsyncIterator[Controller]:
    """Ports open and parts joined; `work` does the rest. Raises OSError where a port is taken,
    InvalidSettingError, ConfigException.
    """
    clock = asyncio.get_running_loop().time
    async with open_frame(settings) as frame:
        stack = frame.stack
        base = await _connect(frame, settings)
        cluster, objects, role, metrics = base.cluster, base.objects, base.role, base.metrics
        shared, bound = await _open_shared(stack, base)
        providers = open_providers(stack, settings, base.limits, base.accounts.secret, cluster.server)
        notifying = await open_notifications(
            stack, shared, metrics,
            wake=lambda key, delay: base.queues[key.kind].put(key, delay),
            planner=PullRequestPlanner(
                objects, providers.backends["git"], shared.tasks, now, settings.namespace
            ),
        )  # fmt: skip
        usages = {**artifact_usage(objects), **usages_of(providers.backends.values())}
        frame.registry.register(QuotaMetrics(base.limits, usages))
        sweeps = [provider.sweep for provider in providers.backends.values()]
        proxies = ProxyFollower(LiveProxies(), objects, cluster, settings.namespace, clock)
        asked = open_rollout_checks(stack, settings, base.accounts, objects, metrics.count_check)
        watches = reference_watches(cluster, base.informer, base.health)
        outputs = Outputs(cluster, metrics, (base.events, *notifying.sinks))
        reconcilers = reconcilers_of(shared, providers, proxies.proxies, notifying, asked)
        loops = {
            kind: Loop(reconciler, objects, outputs, now=now, queue=base.queues[kind], shard=role.shard)
            for kind, reconciler in reconcilers.items()
        }
        undivided = _undivided(base, notifying, outputs.sinks)
        # Objects that claim the same name as one that changed.
        rivals = [lambda change: shared.claims.follow(change.before, change.after).rivals]
        dispatcher = Dispatcher(objects, STAGES, loops, rivals, role.shard)
        for part in (*undivided.pods.followers, proxies, *watches, notifying.outbox):
            objects.react(part.on_change)
        lists = KindLists(base.informer, cluster, WATCHED, settings.namespaces)
        engine = KopfEngine(base.informer, lists, base.health, partial(_on_relist, loops))
        listed = partial(base.informer.has_listed, KINDS, settings.namespaces or ("",))
        state = partial(readiness, listed, role, base.health, undivided.certificates)
        ports = await _open_ports(frame, base, shared, bound, (dispatcher, notifying.plans), state)
        yield Controller(
            ports,
            base.informer,
            engine,
            leadership_of(settings, base.connection, role, shared.address),
            dispatcher,
            loops,
            Leftovers(objects, shared.storages.keep, sweeps, now, shard=role.shard),
            proxies,
            watches,
            shared.shards,
            undivided,
        )


def _on_relist(loops: Mapping[str, Loop], type_: ResourceType) -> None:
    """Handle a restarted watch of a kind."""
    if type_.kind in loops:
        loops[type_.kind].on_relist()


async def _connect(frame: ProcessFrame, settings: ControllerSettings) -> _Base:
    """The client and what needs no more than it: what acts for objects and posts Events, and the limits that
    are followed.
    """
    role = Role(lease=settings.lease, shard=settings.shard)
    health, objects = WatchHealth(time.monotonic), Cache(indexes_of(STAGES))
    queues = {stage.type.kind: queue_of(stage.type.kind, settings.workers) for stage in STAGES}
    metrics = ControllerMetrics(objects, queues, now, health, role, frame.registry)
    connection = await frame.connect(metrics.count_write)
    cluster = connection.with_leadership(role)
    events = await frame.post_events(cluster, metrics.count_write)
    accounts = Accounts(cluster, settings.default_service_account, settings.require_secret_hosts)
    limits = limits_of(settings)
    # Loops write what they decide into the store as it is answered.
    informer = Informer(objects, transforms_of((*WATCHED, *_REFERRED)), shared=True)
    return _Base(
        settings, informer, health, role, queues, metrics, connection, cluster, accounts, events, limits
    )


def _undivided(base: _Base, notifying: Notifying, sinks: tuple[EventSink, ...]) -> Undivided:
    settings = base.settings
    if not base.role.shard.is_default:
        return Undivided()
    return Undivided(
        certificate_rotations(settings, base.connection, base.role),
        _refused_pods(base, notifying.sinks),
        (notifying.deliverer, notifying.plans),
        pod_work_of(settings, base.accounts, base.objects, sinks, base.health),
    )


def _refused_pods(base: _Base, sinks: Iterable[EventSink]) -> tuple[Reflector, ...]:
    """The watches of Events by which admission reports refused pods, which alerts are about, too."""
    reported = ReportedRefusals(base.objects, sinks, now, asyncio.get_running_loop().time)
    scopes = [WatchScope(EVENT, namespace, fields=FIELDS) for namespace in base.settings.namespaces or ("",)]
    return reflectors_of(base.cluster.api, reported.informer, scopes)


async def _open_ports(
    frame: ProcessFrame,
    base: _Base,
    shared: Shared,
    bound: socket.socket,
    woken: tuple[Dispatcher, PlanPoster],
    state: Callable[[], dict[str, Any]],
) -> dict[str, int]:
    """Those of management, artifacts and the receiver; `state` is what /readyz answers."""
    dispatcher, plans = woken
    webhooks = Receiver(
        shared.endpoints,
        base.objects,
        expect=shared.pending.expect,
        wake=dispatcher.wake,
        now=now,
        clock=asyncio.get_running_loop().time,
        role=base.role,
        changed=plans.ask,
        received=base.metrics.count_webhook,
    )
    served = ArtifactServer(shared.storages, lambda: shared.tokens.tokens).routes()
    return await listen(frame, base.settings, bound, state, (served, webhooks.routes()))


async def _open_shared(stack: contextlib.AsyncExitStack, base: _Base) -> tuple[Shared, socket.socket]:
    """And the socket that artifacts are served on."""
    settings = base.settings
    tokens = await asyncio.to_thread(TokenFile, settings.artifact_tokens_file)
    stack.callback(asyncio.create_task(tokens.follow()).cancel)
    bound = stack.enter_context(bound_socket(settings.host, settings.artifact_port))
    address = settings.artifact_server(bound.getsockname()[1])
    storages = Storages(settings.storage_path / "artifacts", f"http://{address}")
    stack.callback(storages.close)
    helpers = Helpers((*MODULES, *_READERS))
    stack.push_async_callback(helpers.close)
    tasks = HelperTasks(helpers, Places(HELPERS, resource="foreign content"))
    clusters = open_clusters(stack, settings, base.accounts)
    known = ClaimIndex(), Endpoints(), PendingPushes(), tasks, clusters, _shards(base)
    shared = Shared(settings, base.objects, base.limits, base.accounts, storages, address, tokens, *known)
    return shared, bound


def _shards(base: _Base) -> ShardFollower | None:
    """What follows the controllers beside this one, with its metric."""
    settings = base.settings
    follower = None
    if settings.watch_label_selector is not None and settings.leader_election:
        clock = asyncio.get_running_loop().time
        follower = ShardFollower(base.connection, settings.namespace, clock)
    kinds = frozenset(base.queues)
    base.metrics.registry.register(ShardMetrics(follower, base.objects, kinds, base.role))
    return follower


@contextlib.asynccontextmanager
async def watch_and_work(
    settings: ControllerSettings, say: Callable[[str], None], ended: Callable[[], None]
) -> AsyncIterator[Controller]:
    """A controller that watches and works for as long as the block lasts, the start of `flagstaff controller`
    and `kopf run` alike; `ended` is called should it stop before. Raises OSError where a port is taken.
    """
    async with open_controller(settings) as controller:
        say(listening(controller.ports))

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


async def run_controller(settings: ControllerSettings, say: Callable[[str], None]) -> None:
    """Watch and work until SIGTERM or SIGINT; a second one ends it at once. Raises OSError where a port is
    taken.
    """
    stop = stop_at_signals()
    async with watch_and_work(settings, say, stop.set):
        await stop.wait()
        end_at_signals()
