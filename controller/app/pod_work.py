"""Objects for pods that read flags from files, from the API server or from a proxy on demand, as the settings
require.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api.kinds import POD
from controller.app.settings.process_settings import InvalidSettingError
from controller.configurations.stage import BY_SHARD
from controller.kube.adapters.workloads import FILES_ROLE, ClusterFiles, ClusterScale, ClusterWorkloads
from controller.kube.reflector import Reflector, WatchScope
from controller.pods.workloads import flag_readers, proxy_scale
from controller.pods.workloads.file_touches import FileTouches, queue_of_files
from controller.pods.workloads.flag_files import FlagFiles
from controller.pods.workloads.flag_readers import FlagReaders
from controller.pods.workloads.marked_pods import FILES_SELECTOR, FilePods, MarkedPods
from controller.pods.workloads.proxy_scale import ProxyScale
from controller.runtime.clock import now
from controller.runtime.reconciling.queue import KeyedQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.app.settings.process_settings import ControllerSettings
    from controller.kube.client import Cluster
    from controller.kube.reflector import Sink
    from controller.runtime.event import EventSink
    from controller.runtime.objects.cache import Cache
    from controller.runtime.objects.watch_health import WatchHealth


@dataclass(frozen=True, slots=True)
class PodWork:
    """The enabled parts, and the watches of pods."""

    files: FlagFiles | None
    readers: FlagReaders | None
    proxy: ProxyScale | None
    pods: tuple[Reflector, ...]


def pod_work_of(
    settings: ControllerSettings,
    cluster: Cluster,
    objects: Cache,
    sinks: Iterable[EventSink],
    health: WatchHealth,
) -> PodWork:
    """Create the parts that the settings enable. Raises InvalidSettingError."""
    if settings.flag_readers and not settings.compat:
        raise InvalidSettingError(
            "--flag-readers needs --compat openfeature-operator: our own container reads through the proxy"
        )
    clock = asyncio.get_running_loop().time
    views = settings.namespaces or ("",)
    watched: list[Reflector] = []

    def watch(selector: str, sink: Sink) -> None:
        for namespace in views:
            view = WatchScope(POD, namespace, labels=selector)
            reflector = Reflector(cluster.api, view, sink)
            health.follow(POD.plural, f"{view.path}?{selector}", reflector)
            watched.append(reflector)

    files = readers = proxy = None
    if settings.flag_files:
        queue = queue_of_files(clock, random.random)
        reading, objects_of_files = FilePods(queue.put), ClusterFiles(cluster, FILES_ROLE)
        touches = FileTouches(objects_of_files, reading, clock, queue_of_files(clock, random.random))
        files = FlagFiles(objects, objects_of_files, sinks, now, queue, BY_SHARD, reading, touches)
        watch(FILES_SELECTOR, reading)
    if settings.flag_readers:
        places: KeyedQueue[str] = KeyedQueue(clock, random.random, places=4, group=str)
        accounts = MarkedPods(views, flag_readers.account_of, places.put)
        rights = ClusterWorkloads(cluster, flag_readers.NAME)
        readers = FlagReaders(rights, places, accounts, settings.namespaces)
        watch(flag_readers.SELECTOR, accounts)
    if settings.proxy_replicas:
        proxied = MarkedPods(views)
        scale, wanted = ClusterScale(cluster), settings.proxy_replicas
        proxy = ProxyScale(scale, objects, proxied, settings.namespace, wanted, clock)
        watch(proxy_scale.SELECTOR, proxied)
    return PodWork(files, readers, proxy, tuple(watched))
