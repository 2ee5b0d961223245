"""Files of flags, as the settings ask for them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api.kinds import POD
from controller.configurations.stage import BY_SHARD
from controller.kube.flag_files import ClusterFiles
from controller.kube.reflector import Reflector, View
from controller.runtime.clock import now
from controller.runtime.queue import KeyedQueue
from controller.workloads.file_pods import SELECTOR, FilePods
from controller.workloads.flag_files import FlagFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.injection.files import FlagFile
    from controller.kube.client import Cluster
    from controller.runtime.cache import Cache
    from controller.runtime.events import EventSink
    from controller.runtime.watch_health import WatchHealth
    from controller.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class FlagFileWork:
    """What keeps them, and what watches the pods that read them."""

    files: FlagFiles
    pods: tuple[Reflector, ...]


def flag_files_of(
    settings: ControllerSettings,
    cluster: Cluster,
    objects: Cache,
    sinks: Iterable[EventSink],
    health: WatchHealth,
) -> FlagFileWork | None:
    """None where they are not asked for."""
    if not settings.flag_files:
        return None
    clock = asyncio.get_running_loop().time
    queue: KeyedQueue[FlagFile] = KeyedQueue(clock, random.random)
    pods = FilePods(queue.put)
    files = FlagFiles(objects, ClusterFiles(cluster), sinks, now, queue, BY_SHARD, pods)
    reflectors = []
    for namespace in settings.namespaces or ("",):
        view = View(POD, namespace, labels=SELECTOR)
        each = Reflector(cluster.api, view, pods, clock=clock, random=random.random)
        health.follow(POD.plural, view.path, each)
        reflectors.append(each)
    return FlagFileWork(files, tuple(reflectors))
