"""The reconciler of each kind, with what it reads and writes by, and the providers of sources."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagsource
from controller.api.openfeature import featureflagconfiguration
from controller.api.rollouts import flagrollout
from controller.app.allowed_hosts import artifact_hosts_of, source_hosts_of
from controller.app.namespace_quotas import artifact_quota
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.remote_providers import RemoteProviders
from controller.configurations.remote_shards import RemoteShards
from controller.configurations.stage import CONFIGURATIONS, FEATURE_FLAGS
from controller.events.alerts.alert_reconciler import FlagAlertReconciler
from controller.events.alerts.stage import FLAG_ALERTS, FLAG_PROVIDERS
from controller.events.receiver.reconciler import FlagReceiverReconciler
from controller.events.receiver.stage import FLAG_RECEIVERS
from controller.flagsets.building.commit_provenance import ProvenanceDetail
from controller.flagsets.building.limited_build import LimitedBuild
from controller.flagsets.reading.fetch import ArtifactReader
from controller.flagsets.reading.inputs import InputReader
from controller.flagsets.reading.source_flags import SourceFlags
from controller.flagsets.reconciler import FlagSetReconciler
from controller.flagsets.stage import FLAG_SETS
from controller.kube.adapters.workloads import ClusterRestarts, ClusterWorkloads
from controller.pods.admission.known_objects import KnownObjects
from controller.pods.upgrades.reconciler import EvaluatorUpgradeReconciler
from controller.pods.upgrades.stage import EVALUATOR_UPGRADES
from controller.pods.workloads.exposure import Exposure
from controller.pods.workloads.reconciler import FlagdReconciler
from controller.pods.workloads.settings_reconciler import SettingsReconciler
from controller.pods.workloads.stage import FEATURE_FLAG_SOURCES, FLAGDS, IN_PROCESS_CONFIGURATIONS
from controller.rollouts.override_reconciler import FlagOverrideReconciler
from controller.rollouts.rollout_reconciler import FlagRolloutReconciler
from controller.rollouts.stage import FLAG_OVERRIDES, ROLLOUTS
from controller.runtime.network.http_client import HttpClient
from controller.runtime.reconciling.queue import KeyedQueue
from controller.runtime.tenancy.places import Places
from controller.sources.bucket.bucket_factory import BucketFactory
from controller.sources.export import Exporter
from controller.sources.freshness import PollSchedule
from controller.sources.git.git_factory import GitFactory
from controller.sources.oci.oci_factory import OciFactory
from controller.sources.reconciler import SourceReconciler
from controller.sources.remote.grpc_flags import GrpcFlags
from controller.sources.remote.http_flags import HttpFlags
from controller.sources.secrets import Secrets
from controller.sources.stage import FLAG_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AsyncExitStack

    from controller.api.objects.meta import ObjectKey
    from controller.app.namespace_quotas import Usage
    from controller.app.notifications import Notifying
    from controller.app.rollout_checks import RolloutChecks
    from controller.app.settings.process_settings import ControllerSettings
    from controller.app.token_file import TokenFile
    from controller.artifacts.storages import Storages
    from controller.configurations.live_proxies import LiveProxies
    from controller.delivery.claims import Claims
    from controller.delivery.remote_answers import RemoteSource
    from controller.events.receiver.webhook_endpoints import Endpoints
    from controller.kube.accounts import Accounts
    from controller.pods.settings.installation import Options
    from controller.runtime.objects.cache import Cache
    from controller.runtime.process.foreign_tasks import ForeignTasks
    from controller.runtime.reconciling.loop import Reconciler
    from controller.runtime.reconciling.watches import Reconciles
    from controller.runtime.tenancy.limits import NamespaceLimits
    from controller.sources.backend import BackendFactory
    from controller.sources.freshness import PendingPushes
    from controller.sources.secrets import ReadSecret

SOURCES_AT_ONCE: Final = 128
"""An object whose server does not answer keeps its place for its whole timeout; the git programs and the
requests to remote providers at a time are bounded elsewhere.
"""
_ASK_SERVERS: Final = frozenset({flagsource.KIND, featureflagconfiguration.KIND, flagrollout.KIND})
"""Kinds whose reconcilers wait for servers of users."""


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
    claims: Claims
    endpoints: Endpoints
    pending: PendingPushes
    tasks: ForeignTasks
    """Read what others wrote."""


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
        Exporter(shared.objects, shared.accounts.client),
        shared.objects,
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
        LimitedBuild(shared.tasks),
    )


def _configurations(parts: Parts) -> ConfigurationReconciler:
    shared = parts.shared
    objects = shared.objects
    sources = {**parts.providers.remote, "flagSource": SourceFlags(objects, _reader(shared))}
    shards = RemoteShards(objects, shared.accounts.client)
    remote = RemoteProviders(objects, sources, shards, shared.tasks)
    return ConfigurationReconciler(objects, shared.claims, parts.proxies, remote, shared.tasks)


def _feature_flags(parts: Parts) -> ConfigurationReconciler:
    shared = parts.shared
    return ConfigurationReconciler(shared.objects, shared.claims, tasks=shared.tasks)


def _flagds(parts: Parts) -> FlagdReconciler:
    shared = parts.shared
    workloads = ClusterWorkloads(shared.accounts.cluster, accounts=shared.accounts)
    exposure = Exposure(shared.settings.flagd_hosts, shared.settings.flagd_annotations)
    return FlagdReconciler(shared.objects, workloads, *parts.injected, exposure=exposure)


def _rollouts(parts: Parts) -> FlagRolloutReconciler:
    objects, client = parts.shared.objects, parts.shared.accounts.client
    return FlagRolloutReconciler(objects, client, parts.asked.checks, parts.asked.hooks)


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
    oci = OciFactory(secret, authors=authors, hosts=hosts)
    identity = not settings.deny_cloud_identity
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
        own=shared.address,
        token=shared.tokens.first,
        judged=artifact_hosts_of(settings, shared.accounts.cluster.server),
    )


def queue_of(kind: str, workers: int) -> KeyedQueue[ObjectKey]:
    """The queue of one kind's keys; half of its places are one namespace's at most, and each finds one."""
    places = SOURCES_AT_ONCE if kind in _ASK_SERVERS else 2 * workers
    clock = asyncio.get_running_loop().time
    return KeyedQueue(clock, random.random, places=places, firsts=places, group=attrgetter("namespace"))
