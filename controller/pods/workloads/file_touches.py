"""Annotates pods of changed ConfigMaps, upon which kubelets update their volumes at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from controller.pods.settings.well_known import FLAGS_CHANGED
from controller.runtime.reconciling.queue import KeyedQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from controller.pods.settings.flag_file import FlagFile
    from controller.pods.workloads.marked_pods import FilePod, FilePods
    from controller.runtime.reconciling.setbacks import Setback

_AT_ONCE: Final = 16
"""Files that are worked on at a time."""


def queue_of_files(clock: Callable[[], float], random: Callable[[], float]) -> KeyedQueue[FlagFile]:
    """A queue in which one namespace has half of the places at most, and each has one."""
    places = _AT_ONCE // 2
    return KeyedQueue(clock, random, places=places, firsts=places, group=attrgetter("namespace"))


class TouchedPods(Protocol):
    """Port to the pods of the cluster."""

    async def touch(self, pod: FilePod, annotations: Mapping[str, str]) -> None:
        """Set annotations of a pod, if that can be done. Raises a Setback where it lacks the right."""


@dataclass(slots=True)
class FileTouches:
    """Annotates pods of changed files: several files at a time, one pod of each after the other."""

    cluster: TouchedPods
    pods: FilePods
    clock: Callable[[], float]
    """Seconds of the queue's clock."""
    queue: KeyedQueue[FlagFile]
    delay: float = 1.0
    """Seconds from a ConfigMap's change to that of its pods, so that the kubelets' watches received it."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the worker that annotates next; in the order of requests."""
    _changes: dict[FlagFile, tuple[str, float]] = field(default_factory=dict)
    """(version for the pods' annotations, time from which it may be written) of each file."""

    def put(self, file: FlagFile, version: str) -> None:
        """Annotate the pods of `file` with its `version`, once their kubelets have seen the change."""
        self._changes[file] = (version, self.clock() + self.delay)
        self.queue.put(file, self.delay)

    async def run(self, failed: Callable[[FlagFile, Setback], None]) -> None:
        """Annotate pods until cancelled; `failed` receives each file where that is refused."""
        await self.queue.work(self.touch, failed)

    async def touch(self, file: FlagFile) -> None:
        """Annotate the pods of one file. Raises a Setback where that is refused."""
        change = version, since = self._changes[file]
        rest = since - self.clock()
        if rest > 0:
            # It changed again while it waited, which the kubelets may not have seen.
            self.queue.put(file, rest)
        # Also those that came meanwhile: they may have been started without the ConfigMap.
        for pod in self.pods.readers(file):
            async with self._turn:
                # At most 50 pods a second, of all files together.
                await self.sleep(1 / 50)
            await self.cluster.touch(pod, {FLAGS_CHANGED: version})
        if rest <= 0 and self._changes[file] == change:
            del self._changes[file]
