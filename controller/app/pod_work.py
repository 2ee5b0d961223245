"""Objects for pods that read flags from files, from the API server or from a proxy on demand, as the settings
require.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from controller.api.kinds import FLAG_CARRIERS, POD
from controller.api.meta import ObjectKey, Resource
from controller.app.settings import ControllerSettings, InvalidOptionError
from controller.configurations.stage import BY_SHARD
from controller.flagsets.compose import ProvenanceDetail
from controller.kube.adapters import FILES_ROLE, ClusterFiles, ClusterScale, ClusterWorkloads
from controller.kube.reflector import Reflector, WatchScope, reflectors_of
from controller.pods import carried_flags, flag_readers, proxy_scale, set_writer
from controller.pods.flag_files import FileTouches, FlagFiles, queue_of_files
from controller.pods.flag_readers import FlagReaders
from controller.pods.marked_pods import FILES_SELECTOR, FilePods, MarkedPods
from controller.pods.marked_workloads import MarkedWorkloads
from controller.pods.proxy_scale import ProxyScale
from controller.pods.set_writer import DirectSets
from controller.runtime.clock import now
from controller.runtime.queue import KeyedQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.kind import ResourceType
    from controller.kube.client import Accounts, Cluster
    from controller.runtime.cache import Cache
    from controller.runtime.event import EventSink
    from controller.runtime.informer import Informer
    from controller.runtime.watch_health import WatchHealth


@dataclass(frozen=True, slots=True)
class PodWork:
    """The enabled parts, and the watches of pods and workloads."""

    files: FlagFiles | None = None
    readers: FlagReaders | None = None
    proxy: ProxyScale | None = None
    direct_sets: DirectSets | None = None
    watches: tuple[Reflector, ...] = ()

    @property
    def followers(self) -> tuple[FlagFiles | DirectSets, ...]:
        """The parts that react to the changes of objects."""
        return tuple(part for part in (self.files, self.direct_sets) if part is not None)


def pod_work_of(
    settings: ControllerSettings,
    accounts: Accounts,
    objects: Cache,
    sinks: Iterable[EventSink],
    health: WatchHealth,
) -> PodWork:
    """Create the parts that the settings enable. Raises InvalidSettingError."""
    if settings.flag_readers and not settings.compat:
        raise InvalidOptionError(
            "--flag-readers needs --compat openfeature-operator: our own container reads through the proxy"
        )
    cluster, clock = accounts.cluster, asyncio.get_running_loop().time
    views = settings.namespaces or ("",)
    watched: list[Reflector] = []

    def watch(selector: str, informer: Informer, types: Iterable[ResourceType] = (POD,)) -> None:
        scopes = [WatchScope(type_, namespace, labels=selector) for type_ in types for namespace in views]
        watched.extend(reflectors_of(cluster.api, informer, scopes, health))

    files = readers = proxy = direct_sets = None
    if settings.flag_files:
        files = _flag_files(cluster, objects, sinks)
        watch(FILES_SELECTOR, files.pods.informer)
    if settings.flag_readers:
        places: KeyedQueue[str] = KeyedQueue(clock, random.random, places=4, group=str)
        readers_accounts = MarkedPods(views, flag_readers.account_of, places.put)
        rights = ClusterWorkloads(cluster, flag_readers.NAME)
        readers = FlagReaders(rights, places, readers_accounts, settings.namespaces)
        watch(flag_readers.SELECTOR, readers_accounts.informer)
    if settings.proxy_replicas:
        proxied = MarkedPods(views)
        scale, wanted = ClusterScale(cluster), settings.proxy_replicas
        proxy = ProxyScale(scale, objects, proxied, settings.namespace, wanted, clock)
        watch(proxy_scale.SELECTOR, proxied.informer)
    if settings.direct_sets:
        direct_sets = _direct_sets(settings, accounts, objects, sinks)
        watch(carried_flags.SELECTOR, direct_sets.workloads.informer, FLAG_CARRIERS)
    return PodWork(files, readers, proxy, direct_sets, tuple(watched))


def _flag_files(cluster: Cluster, objects: Cache, sinks: Iterable[EventSink]) -> FlagFiles:
    clock = asyncio.get_running_loop().time
    queue = queue_of_files(clock, random.random)
    reading, config_maps = FilePods(queue.put), ClusterFiles(cluster, FILES_ROLE)
    touches = FileTouches(config_maps, reading, clock, queue_of_files(clock, random.random))
    return FlagFiles(objects, config_maps, sinks, now, queue, BY_SHARD, reading, touches)


def _direct_sets(
    settings: ControllerSettings, accounts: Accounts, objects: Cache, sinks: Iterable[EventSink]
) -> DirectSets:
    """They are written with the rights of FlagSets that name no service account."""

    def learn(body: dict[str, Any]) -> None:
        objects.learn(Resource.of(body))

    clock, authors = asyncio.get_running_loop().time, settings.provenance is ProvenanceDetail.FULL
    queue: KeyedQueue[ObjectKey] = KeyedQueue(clock, random.random, places=4, group=attrgetter("namespace"))
    marked = MarkedWorkloads(settings.namespaces or ("",), queue.put, authors=authors)
    reading = ClusterWorkloads(accounts.cluster, set_writer.ROLE)
    return DirectSets(objects, reading, accounts.client, learn, sinks, now, queue, marked)
