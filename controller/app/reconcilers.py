"""The reconciler of each kind, with what it reads and writes by."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration, flagrollout, flagsource
from controller.api.flagprovider import FlagProviderStatus
from controller.api.kinds import FLAG_PROVIDER
from controller.api.meta import ObjectKey, Resource
from controller.app.namespace_limits import (
    artifact_hosts_of,
    artifact_quota,
    kubeconfig_hosts_of,
    provider_hosts_of,
    rollout_hosts_of,
    source_hosts_of,
)
from controller.app.settings import ControllerSettings, InvalidOptionError
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.remote_providers import RemoteProviders, RemoteShards
from controller.configurations.stage import CONFIGURATIONS, FEATURE_FLAGS
from controller.events.alert_reconciler import FlagAlertReconciler
from controller.events.alert_stage import FLAG_ALERTS, FLAG_PROVIDERS
from controller.events.commit_pages import PageLinks
from controller.events.deliverer import Deliverer, Senders
from controller.events.flux_events import FLUX, FluxEvents
from controller.events.outbox import Outbox
from controller.events.plan_poster import PlanPoster
from controller.events.provider_reconciler import FlagProviderReconciler
from controller.events.receiver_reconciler import FlagReceiverReconciler
from controller.events.receiver_stage import FLAG_RECEIVERS
from controller.events.senders import HttpSender, MailSender
from controller.flagsets.compose import ProvenanceDetail
from controller.flagsets.fetch import ArtifactReader, SourceFlags
from controller.flagsets.inputs import InputReader
from controller.flagsets.limited_build import LimitedBuild
from controller.flagsets.reconciler import FlagSetReconciler
from controller.flagsets.stage import FLAG_SETS
from controller.kube.adapters import ClusterRestarts, ClusterWorkloads
from controller.kube.remote_clusters import KubeConfigClusters
from controller.pods.flagd_objects import ExposureRules
from controller.pods.flagd_reconciler import FlagdReconciler, SettingsReconciler
from controller.pods.known_objects import KnownObjects
from controller.pods.stage import FEATURE_FLAG_SOURCES, FLAGDS, IN_PROCESS_CONFIGURATIONS
from controller.pods.upgrade_reconciler import EvaluatorUpgradeReconciler
from controller.pods.upgrade_stage import EVALUATOR_UPGRADES
from controller.rollouts.deleted_flags import DeletedFlags
from controller.rollouts.metric_checks import MetricChecks
from controller.rollouts.metric_servers import AllowedServers, WebhookCalls
from controller.rollouts.override_reconciler import FlagOverrideReconciler
from controller.rollouts.rollout_reconciler import FlagRolloutReconciler
from controller.rollouts.stage import FLAG_OVERRIDES, ROLLOUTS
from controller.runtime.clock import now
from controller.runtime.http_client import HttpClient
from controller.runtime.limits import NamespaceLimits, Places
from controller.runtime.queue import KeyedQueue
from controller.sources.bucket_factory import BucketFactory
from controller.sources.flag_servers import GrpcFlags, HttpFlags
from controller.sources.freshness import PendingPushes, PollSchedule
from controller.sources.git_factory import GitFactory
from controller.sources.oci_backend import OciFactory
from controller.sources.reconciler import Exporter, SourceReconciler
from controller.sources.secrets import Secrets
from controller.sources.stage import FLAG_SOURCES
from evaluator.host import durable

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AsyncExitStack

    from controller.app.namespace_limits import Usage
    from controller.artifacts.storage import Storages
    from controller.configurations.live_proxies import LiveProxies
    from controller.delivery.claims import ClaimIndex
    from controller.delivery.delivered import RemoteSource
    from controller.events.plan_poster import Planner
    from controller.events.webhook_server import Endpoints
    from controller.kube.client import Accounts
    from controller.pods.installation import Options
    from controller.rollouts.rollout_ports import Hooks, StepChecks
    from controller.runtime.cache import Cache
    from controller.runtime.event import EventSink
    from controller.runtime.helpers import ForeignTasks
    from controller.runtime.loop import Reconciler
    from controller.runtime.metrics import ControllerMetrics
    from controller.runtime.shards import ShardFollower
    from controller.runtime.watches import Reconciles
    from controller.sources.backend import BackendFactory
    from controller.sources.secrets import ReadSecret


log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""Seconds between two reads of the file, as with certificates."""
MOST_BYTES: Final = 65_536


class TokenFile:
    """Tokens, one a line. A file that goes bad later leaves the last good ones in use, not none at all."""

    def __init__(self, path: str) -> None:
        """`path`: empty for no tokens. Blocks. Raises InvalidSettingError for a file that has none."""
        self._path = path
        self._fault: str | None = None
        self.tokens = _read(Path(path)) if path else ()
        """In the file's order."""

    def first(self) -> str | None:
        """The token that other processes of ours are shown."""
        return self.tokens[0] if self.tokens else None

    def refresh(self) -> None:
        """Take over what the file holds now. Blocks. A fault is logged once, until it is another one."""
        try:
            tokens = _read(Path(self._path))
        except InvalidOptionError as error:
            if self._fault != str(error):
                self._fault = str(error)
                log.warning("%s; the tokens read before stay in use", error)
            return
        self._fault = None
        if tokens != self.tokens:
            self.tokens = tokens
            log.info("tokens re-read from %s: %s", self._path, len(tokens))

    async def follow(self, pause: float = POLL_SECONDS) -> None:
        """Read the file again every `pause` seconds, until cancelled."""
        while self._path:
            await asyncio.sleep(pause)
            await asyncio.to_thread(self.refresh)


def _read(path: Path) -> tuple[str, ...]:
    try:
        content = durable.read_file(path, MOST_BYTES)
        lines = content.decode("ascii").splitlines()
    except OSError as error:
        raise InvalidOptionError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        # Without the text: some of it is secret.
        raise InvalidOptionError(f"{path}: byte {error.start} is not ASCII") from None
    if len(content) > MOST_BYTES:
        raise InvalidOptionError(f"{path}: larger than {MOST_BYTES} bytes")
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens:
        raise InvalidOptionError(f"{path} contains no token; write one token per line")
    return tokens


ROLLOUT_REQUESTS_AT_ONCE: Final = 128
"""Requests at a time; one namespace has half of them at most."""


@dataclass(frozen=True, slots=True)
class RolloutChecks:
    """What rollouts ask."""

    checks: StepChecks
    hooks: Hooks
    deleted: DeletedFlags
    """Asks for FlagSets."""


def open_rollout_checks(
    stack: AsyncExitStack,
    settings: ControllerSettings,
    accounts: Accounts,
    objects: Cache,
    count: Callable[[str], None],
) -> RolloutChecks:
    """Connect the parts; `stack` closes them. `count`: counts a check by its verdict."""
    hosts = rollout_hosts_of(settings, accounts.cluster.server)
    client = HttpClient(
        hosts,
        Places(ROLLOUT_REQUESTS_AT_ONCE, ROLLOUT_REQUESTS_AT_ONCE, resource="rollout requests"),
        system_proxies=True,
    )
    stack.push_async_callback(client.close)
    servers = AllowedServers(client, accounts.secret, allow_local=bool(settings.rollout_hosts))
    return RolloutChecks(MetricChecks(objects, servers, count), WebhookCalls(servers), DeletedFlags(servers))


ALERTS_AT_ONCE: Final = 256
"""Requests that are sent at a time; one namespace has half of them at most."""


@dataclass(frozen=True, slots=True)
class Notifying:
    """The parts that others need."""

    outbox: Outbox
    sinks: tuple[EventSink, ...]
    """Sinks of Events: the outbox, and optionally the posts to Flux."""
    deliverer: Deliverer
    plans: PlanPoster
    providers: FlagProviderReconciler


async def open_notifications(
    stack: contextlib.AsyncExitStack,
    shared: Shared,
    metrics: ControllerMetrics,
    wake: Callable[[ObjectKey, float], None],
    planner: Planner,
) -> Notifying:
    """Connect the parts; `stack` closes them, `wake` puts an object into its queue."""
    settings, accounts, objects = shared.settings, shared.accounts, shared.objects
    cluster = accounts.cluster
    hosts = provider_hosts_of(settings, cluster.server)
    # The other client is for addresses that come from the controller's operator.
    http, operators = (
        HttpClient(allowed, Places(ALERTS_AT_ONCE, ALERTS_AT_ONCE, resource="alerts"))
        for allowed in (hosts, None)
    )
    stack.push_async_callback(http.close)
    stack.push_async_callback(operators.close)
    outbox = Outbox(objects, now, wake, settings.shard)
    deliverer = Deliverer(
        outbox,
        Senders(HttpSender(http, now), MailSender(hosts), HttpSender(operators, now)),
        objects,
        cluster,
        now=now,
        clock=asyncio.get_running_loop().time,
        random=random.random,
        count=metrics.count_alert,
        tasks=shared.tasks,
    )

    async def newest(key: ObjectKey) -> FlagProviderStatus:
        body = await cluster.get(FLAG_PROVIDER.api_version, key.kind, key.namespace, key.name)
        return FlagProviderStatus.of(None if body is None else Resource.of(body))

    plans = PlanPoster(
        deliverer.senders.http,
        planner,
        objects,
        now,
        asyncio.get_running_loop().time,
        random.random,
        wake=lambda key: wake(key, 0.0),
    )
    providers = FlagProviderReconciler(
        accounts.secret,
        newest,
        outbox,
        deliverer,
        plans,
        settings.identity,
        settings.allow_local_providers,
        settings.events_addr or FLUX,
        settings.cluster_name,
    )
    sinks: tuple[EventSink, ...] = (outbox,)
    if settings.events_addr:
        flux = FluxEvents(
            settings.events_addr, HttpSender(operators, now), objects, settings.identity, metrics.registry
        )
        await stack.enter_async_context(flux.post_in_background())
        sinks = (outbox, flux)
    if settings.page_url:
        sinks = (PageLinks(sinks, settings.page_url),)
    return Notifying(outbox, sinks, deliverer, plans, providers)


SOURCES_AT_ONCE: Final = 128
"""An object whose server does not answer keeps its place for its whole timeout; the git programs and the
requests to remote providers at a time are bounded elsewhere.
"""
_ASK_SERVERS: Final = frozenset({flagsource.KIND, featureflagconfiguration.KIND, flagrollout.KIND})
"""Kinds whose reconcilers wait for servers of users."""


CLUSTERS_AT_ONCE: Final = 64
"""Requests to API servers of other clusters at a time; one namespace has half of them at most."""


def open_clusters(
    stack: AsyncExitStack, settings: ControllerSettings, accounts: Accounts
) -> KubeConfigClusters:
    """The other clusters of FlagSets; `stack` closes the connections."""
    hosts = kubeconfig_hosts_of(settings, accounts.cluster.server)
    places = Places(CLUSTERS_AT_ONCE, CLUSTERS_AT_ONCE, resource="other clusters")
    client = HttpClient(hosts, places)
    stack.push_async_callback(client.close)
    return KubeConfigClusters(accounts, client)


REMOTE_AT_ONCE: Final = 16
"""Requests to remote providers at a time, by HTTP and by gRPC; an answer has some MB at most."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared parts of the reconcilers and servers of one process."""

    settings: ControllerSettings
    objects: Cache
    limits: NamespaceLimits
    accounts: Accounts
    storages: Storages
    address: str
    """Host and port at which others reach our artifacts."""
    tokens: TokenFile
    claims: ClaimIndex
    endpoints: Endpoints
    pending: PendingPushes
    tasks: ForeignTasks
    """Read what others wrote."""
    clusters: KubeConfigClusters
    """Others, which FlagSets write to."""
    shards: ShardFollower | None = None
    """The controllers beside this one; None: there are none."""

    def artifact_servers(self) -> Collection[str]:
        """Host and port of ours, and of those of other shards."""
        return {self.address, *(() if self.shards is None else self.shards.artifacts)}


@dataclass(frozen=True, slots=True)
class Providers:
    """What is asked for flags."""

    backends: Mapping[str, BackendFactory[Any]]
    """By the field of a FlagSource's spec that configures them."""
    remote: Mapping[str, RemoteSource]
    """By the type of a remote provider: servers of flags that objects merge with their own."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All that reconcilers are made of."""

    shared: Shared
    providers: Providers
    proxies: LiveProxies
    notifying: Notifying
    asked: RolloutChecks
    injected: tuple[KnownObjects, Options]
    """What the webhook gives to pods: evaluators of a Flagd, and of pods that are upgraded, are the same."""


def _sources(parts: Parts) -> SourceReconciler:
    shared = parts.shared
    return SourceReconciler(
        parts.providers.backends,
        shared.storages,
        shared.pending,
        random.random,
        PollSchedule(),
        artifact_quota(shared.limits, shared.objects),
        Exporter(shared.objects, shared.accounts.client, shared.settings.shard),
        shared.objects,
        shard=shared.settings.shard,
        read=_reader(shared).read,
    )


def _flag_sets(parts: Parts) -> FlagSetReconciler:
    shared, accounts = parts.shared, parts.shared.accounts
    return FlagSetReconciler(
        shared.objects,
        _reader(shared),
        accounts.client,
        random.random,
        shared.settings.provenance,
        InputReader(accounts.secret, accounts.config_map),
        shared.settings.namespace,
        LimitedBuild(shared.tasks),
        parts.asked.deleted,
        shard=shared.settings.shard,
        clusters=shared.clusters,
    )


def _configurations(parts: Parts) -> ConfigurationReconciler:
    shared = parts.shared
    objects = shared.objects
    sources = {**parts.providers.remote, "flagSource": SourceFlags(objects, _reader(shared))}
    shards = RemoteShards(objects, shared.accounts.client, shared.settings.shard)
    remote = RemoteProviders(objects, sources, shards, shared.tasks)
    return ConfigurationReconciler(objects, shared.claims, parts.proxies, remote, shared.tasks)


def _feature_flags(parts: Parts) -> ConfigurationReconciler:
    shared = parts.shared
    return ConfigurationReconciler(shared.objects, shared.claims, tasks=shared.tasks)


def _flagds(parts: Parts) -> FlagdReconciler:
    shared = parts.shared
    workloads = ClusterWorkloads(shared.accounts.cluster, accounts=shared.accounts)
    exposure = ExposureRules(shared.settings.flagd_hosts, shared.settings.flagd_annotations)
    return FlagdReconciler(shared.objects, workloads, *parts.injected, exposure=exposure)


def _rollouts(parts: Parts) -> FlagRolloutReconciler:
    shared, asked = parts.shared, parts.asked
    client, shard = shared.accounts.client, shared.settings.shard
    return FlagRolloutReconciler(shared.objects, client, asked.checks, asked.hooks, shard=shard)


_KINDS: Final[tuple[tuple[Reconciles, Callable[[Parts], Reconciler]], ...]] = (
    (FLAG_SOURCES, _sources),
    (FLAG_SETS, _flag_sets),
    (CONFIGURATIONS, _configurations),
    (FEATURE_FLAGS, _feature_flags),
    (FLAG_OVERRIDES, lambda of: FlagOverrideReconciler(of.shared.objects)),
    (ROLLOUTS, _rollouts),
    (
        FLAG_RECEIVERS,
        lambda of: FlagReceiverReconciler(of.shared.accounts.secret, of.shared.endpoints, of.shared.objects),
    ),
    (FLAG_PROVIDERS, lambda of: of.notifying.providers),
    (FLAG_ALERTS, lambda of: FlagAlertReconciler(of.shared.objects, of.notifying.outbox)),
    (FLAGDS, _flagds),
    (FEATURE_FLAG_SOURCES, lambda of: SettingsReconciler(*of.injected)),
    (IN_PROCESS_CONFIGURATIONS, lambda of: SettingsReconciler(*of.injected)),
    (
        EVALUATOR_UPGRADES,
        lambda of: EvaluatorUpgradeReconciler(ClusterRestarts(of.shared.accounts.cluster), *of.injected),
    ),
)
"""Each kind with a reconciler: what wakes it, and how the reconciler is made."""
STAGES: Final = tuple(stage for stage, _ in _KINDS)


def reconcilers_of(
    shared: Shared, providers: Providers, proxies: LiveProxies, notifying: Notifying, asked: RolloutChecks
) -> dict[str, Reconciler]:
    """By kind."""
    settings = shared.settings
    known = KnownObjects(shared.objects, settings.namespaces, open=bool(settings.allow_cross_namespace))
    parts = Parts(shared, providers, proxies, notifying, asked, (known, settings.injection()))
    return {stage.type.kind: make(parts) for stage, make in _KINDS}


def providers_of(
    settings: ControllerSettings, limits: NamespaceLimits, secret: ReadSecret, api_server: str
) -> dict[str, BackendFactory[Any]]:
    """By the field of a FlagSource's spec that configures them. `api_server`: its URL."""
    authors = settings.provenance is ProvenanceDetail.FULL
    hosts = source_hosts_of(settings, api_server)
    git = GitFactory(
        secret,
        settings.storage_path / "mirrors",
        allow_local=settings.allow_local,
        authors=authors,
        hosts=hosts,
        limits=limits,
    )
    identity = not settings.deny_cloud_identity
    oci = OciFactory(secret, authors=authors, hosts=hosts, cloud_identity=identity)
    bucket = BucketFactory(secret, hosts, authors=authors, cloud_identity=identity)
    return {"git": git, "oci": oci, "bucket": bucket}


def open_providers(
    stack: AsyncExitStack,
    settings: ControllerSettings,
    limits: NamespaceLimits,
    secret: ReadSecret,
    api_server: str,
) -> Providers:
    """All providers, until `stack` closes them. Remote ones ask the hosts that FlagSources may use."""
    backends = providers_of(settings, limits, secret, api_server)
    for backend in backends.values():
        stack.push_async_callback(backend.close)
    hosts, secrets = source_hosts_of(settings, api_server), Secrets(secret)
    http = Places(REMOTE_AT_ONCE, REMOTE_AT_ONCE, resource="remote HTTP")
    rpc = Places(REMOTE_AT_ONCE, REMOTE_AT_ONCE, resource="remote gRPC")
    client = HttpClient(hosts, http, system_proxies=True)
    stack.push_async_callback(client.close)
    return Providers(backends, {"http": HttpFlags(client, secrets), "grpc": GrpcFlags(hosts, secrets, rpc)})


def usages_of(providers: Iterable[BackendFactory[Any]]) -> dict[str, Usage]:
    """What namespaces have of what is limited, by the field of `NamespaceLimits`."""
    return {
        name: usage
        for provider in providers
        if isinstance(provider, GitFactory)
        for name, usage in provider.usage.items()
    }


def _reader(shared: Shared) -> ArtifactReader:
    # Our own address, too: a replica that does not hold an artifact asks for it.
    settings = shared.settings
    return ArtifactReader(
        shared.storages.read,
        settings.artifact_hosts,
        own=shared.artifact_servers,
        token=shared.tokens.first,
        judged=artifact_hosts_of(settings, shared.accounts.cluster.server),
    )


def queue_of(kind: str, workers: int) -> KeyedQueue[ObjectKey]:
    """The queue of one kind's keys; one namespace gets at most half of its places."""
    places = SOURCES_AT_ONCE if kind in _ASK_SERVERS else 2 * workers
    clock = asyncio.get_running_loop().time
    return KeyedQueue(clock, random.random, places=places, firsts=places, group=attrgetter("namespace"))
