"""Flag sets as ConfigMaps, for pods that read them as files: made when the first such pod is there, kept at
what is delivered, and owned by what owns the pods, so that Kubernetes removes each with the last of them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api import flagoverride, flagrollout, flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.kinds import CONFIG_MAP
from controller.api.meta import ObjectKey, Resource, about, generation_of
from controller.api.remote_provider import entries_in_force
from controller.api.rollout_status import held_entries
from controller.delivery.delivered import delivery_of
from controller.delivery.overrides import BY_WRITER, order_of_override, seconds_to_next_end, set_name
from controller.delivery.rollouts import (
    ROLLOUTS_BY_SHARD,
    TARGETS_BY_SHARD,
    PromotedSets,
    order_of,
    progress_of,
)
from controller.pods.flag_file import FlagFile
from controller.pods.flagd_objects import MANAGED_BY, OURS, is_ours
from controller.pods.installation import FLAGS_CHANGED, SERVED
from controller.runtime.cache import Cache, Change, Index, at_version
from controller.runtime.event import EventSink, Occurrence, event_of
from controller.runtime.queue import KeyedQueue
from controller.runtime.setbacks import Setback, Stalled, Waiting
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.canonical import canonical
from evaluator.flags.model import DIGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from datetime import datetime

    from controller.pods.marked_pods import FilePods


_AT_ONCE: Final = 16
"""Files that are worked on at a time."""


def queue_of_files(clock: Callable[[], float], random: Callable[[], float]) -> KeyedQueue[FlagFile]:
    """A queue in which one namespace has half of the places at most, and each has one."""
    places = _AT_ONCE // 2
    return KeyedQueue(clock, random, places=places, firsts=places, group=attrgetter("namespace"))


class TouchedPods(Protocol):
    """Port to the pods of the cluster."""

    async def touch(self, pod: Resource, annotations: Mapping[str, str]) -> None:
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


log = logging.getLogger(__name__)

MANAGER: Final = "flagstaff-flag-files"
"""The field manager."""
OPERATORS_MARK: Final = "openfeature.dev/featureflag"
"""The annotation by which OpenFeature Operator marks its ConfigMaps, with the flag set's name."""
CHECK_SECONDS: Final = 60.0
"""Seconds from one comparison with the cluster to the next."""
MOST_BYTES: Final = 1_000_000
"""Most bytes of flags: 1 MiB of a ConfigMap, less the rest of it."""


class FileObjects(Protocol):
    """ConfigMaps. Every method raises a Setback."""

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """See Applier."""

    async def config_map(self, file: FlagFile) -> dict[str, Any] | None:
        """The ConfigMap's body, or None."""

    async def adopt(self, file: FlagFile) -> None:
        """Put our label on the operator's ConfigMap."""


@dataclass(slots=True)
class FlagFiles:
    """Writes the ConfigMaps of flag sets that pods read as files."""

    objects: Cache
    cluster: FileObjects
    sinks: Iterable[EventSink]
    now: Callable[[], datetime]
    queue: KeyedQueue[FlagFile]
    by_shard: Index
    """FeatureFlagConfigurations by the FlagShards that they consist of."""
    pods: FilePods
    touches: FileTouches
    _failed: dict[FlagFile, str] = field(default_factory=dict)
    """The failure that was reported last of each file."""
    _promoted: PromotedSets = field(init=False)

    def __post_init__(self) -> None:
        self._promoted = PromotedSets(self.objects.get)

    def on_change(self, change: Change) -> None:
        """Handle a change of any object."""
        key = change.latest.key
        if _content(change.before) == _content(change.after):
            return
        if key.kind in SERVED:
            self._wake(FlagFile(key.namespace, key.name))
        elif key.kind == flagshard.KIND:
            for resource in self.objects.find(self.by_shard, key.namespace, key.name):
                self._wake(FlagFile(resource.namespace, resource.name))
            self._wake_promoted(key)
        elif key.kind in (flagoverride.KIND, flagrollout.KIND):
            for order in filter(None, (change.before, change.after)):
                self._wake_set(key.namespace, set_name(order))

    def _wake_set(self, namespace: str, name: str) -> None:
        self._wake(FlagFile(namespace, name))
        for resource in self.objects.find(BY_WRITER, namespace, name):
            self._wake(FlagFile(resource.namespace, resource.name))

    def _wake_promoted(self, shard: ObjectKey) -> None:
        for rollout in self.objects.find(ROLLOUTS_BY_SHARD, shard.namespace, shard.name):
            self._wake_set(shard.namespace, set_name(rollout))
        for target in self.objects.find(TARGETS_BY_SHARD, shard.namespace, shard.name):
            self._wake(FlagFile(target.namespace, target.name))

    def _wake(self, file: FlagFile) -> None:
        if self.pods.readers(file):
            self.queue.put(file)

    async def run(self) -> None:
        """Keep files until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.touches.run(self._report_refusal))
            group.create_task(self.queue.work(self.keep, self._report_refusal, longest=CHECK_SECONDS))

    async def keep(self, file: FlagFile) -> None:
        """Update one file to the delivered flags, and compare again later. A file without readers is left
        alone. Raises a Setback.
        """
        readers = self.pods.readers(file)
        if not readers:
            self.queue.forget(file)
            self._failed.pop(file, None)
            for kind in SERVED:
                self._promoted.forget(ObjectKey(kind, file.namespace, file.name))
            return
        served = self._find_served(file)
        try:
            await self._keep(file, served, readers)
        except Waiting as waiting:
            log.info("the ConfigMap of the flags: %s", waiting.message, extra=about(_key(file, served)))
        else:
            self._failed.pop(file, None)

    async def _keep(self, file: FlagFile, served: Resource | None, readers: list[Resource]) -> None:
        config_map = await self.cluster.config_map(file)
        if served is None and not is_ours(config_map):
            # The flag set wakes us.
            return
        now = self.now().timestamp()
        progress = NO_PROGRESS if served is None else progress_of(self.objects, served, now, self._promoted)
        end = seconds_to_next_end(progress, now)
        self.queue.put(file, CHECK_SECONDS if end is None else min(CHECK_SECONDS, end))
        if config_map is not None and not is_ours(config_map):
            await self._adopt(config_map, file)
        before = ((config_map or {}).get("data") or {}).get(file.key)
        text, setback = before, None
        if served is not None:
            try:
                part = flagshard.finder(self.objects.get, file.namespace)
                text = await asyncio.to_thread(_text, served, part, before, progress)
            except Setback as raised:
                setback = raised
        references = _owners(config_map, readers)
        if text is not None and (text != before or references != _references(config_map)):
            # Also where the flags are bad or gone: newer pods read what is there, and it must not go with the
            # owner of older ones.
            manifest = at_version(_manifest(file, text, references), _version(config_map))
            config_map, _ = await self.cluster.apply(manifest, manager=MANAGER)
        if setback is not None:
            raise setback
        if served is not None and config_map is not None and text != before:
            self._report(served, Occurrence("FlagFileWritten", f"ConfigMap {file.name} has these flags"))
            # Of the ConfigMap, not of the flags: one that was deleted and made again is another.
            self.touches.put(file, config_map["metadata"]["resourceVersion"])

    def _find_served(self, file: FlagFile) -> Resource | None:
        keys = (ObjectKey(kind, file.namespace, file.name) for kind in SERVED)
        return next((served for key in keys if (served := self.objects.get(key)) is not None), None)

    async def _adopt(self, config_map: Mapping[str, Any], file: FlagFile) -> None:
        """Adopt the operator's ConfigMap. Raises Stalled if it has another owner."""
        if (config_map["metadata"].get("annotations") or {}).get(OPERATORS_MARK) != file.name:
            raise Stalled(
                "OwnershipConflict",
                f"ConfigMap {file.name} is there, and not of Flagstaff; rename it, or use the provider "
                "kubernetes",
            )
        await self.cluster.adopt(file)

    def _report_refusal(self, file: FlagFile, setback: Setback) -> None:
        served = self._find_served(file)
        log.warning("the ConfigMap of the flags: %s", setback.message, extra=about(_key(file, served)))
        if served is not None and self._failed.get(file) != setback.message:
            self._failed[file] = setback.message
            self._report(served, Occurrence("FlagFileFailed", setback.message, warning=True))

    def _report(self, served: Resource, occurrence: Occurrence) -> None:
        event = event_of(served, occurrence, self.now())
        for sink in self.sinks:
            sink.accept(event)


def _content(resource: Resource | None) -> object:
    if resource is None:
        return None
    if resource.key.kind == flagrollout.KIND:
        return order_of(resource)
    if resource.key.kind == flagoverride.KIND:
        return order_of_override(resource)
    promoted = held_entries(resource.status), resource.annotations.get(flagrollout.PROMOTE)
    return generation_of(resource), entries_in_force(resource.status), promoted


def _key(file: FlagFile, served: Resource | None) -> ObjectKey:
    return ObjectKey(CONFIG_MAP.kind, file.namespace, file.name) if served is None else served.key


def _text(
    served: Resource, part: Callable[[str], Resource | None], before: str | None, progress: Progress
) -> str:
    """Return the file's content; an invalid flag keeps its present definition. Raises a setback."""
    previous = None if before is None else before.encode()
    try:
        made = delivery_of(served, part, progress, previous)
    except MissingShardsError as missing:
        raise Waiting("ShardsMissing", str(missing)) from missing
    except InvalidSpecError as error:
        raise Stalled("InvalidSpec", str(error)) from error
    if not made.digest:
        raise Stalled("InvalidFlags", made.cause)
    metadata = MappingProxyType({**made.flag_set.metadata, DIGEST_KEY: made.digest})
    content = canonical(replace(made.flag_set, metadata=metadata), provenance=True)
    if len(content) > MOST_BYTES:
        raise Stalled(
            "TooLarge",
            f"{len(content)} bytes of flags are more than a ConfigMap holds; use the provider kubernetes",
        )
    return content.decode()


def _references(config_map: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return list((config_map or {"metadata": {}})["metadata"].get("ownerReferences") or ())


def _version(config_map: Mapping[str, Any] | None) -> str:
    return str((config_map or {"metadata": {}})["metadata"].get("resourceVersion") or "")


def _owners(config_map: Mapping[str, Any] | None, readers: list[Resource]) -> list[dict[str, Any]]:
    """Return the present owners, which Kubernetes removes as they are deleted, and those of the readers."""
    owners = {reference["uid"]: reference for reference in _references(config_map)}
    for pod in readers:
        (owner,) = pod.owners
        if len(owners) < 200:
            owners.setdefault(owner["uid"], dict(owner))
    return list(owners.values())


def _manifest(file: FlagFile, text: str, references: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": file.name,
            "namespace": file.namespace,
            "labels": {MANAGED_BY: OURS},
            "annotations": {OPERATORS_MARK: file.name},
            "ownerReferences": references,
        },
        "data": {file.key: text},
    }
