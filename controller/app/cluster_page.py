"""What one caller may see of a cluster, as the page shows it."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagrollout, flagset, flagshard
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.kinds import EVENT, FEATURE_FLAG, FEATURE_FLAG_CONFIGURATION
from controller.api.meta import AUTHOR, NOTHING, SUBJECT, ObjectKey, Resource, version_of
from controller.app.cluster_objects import EVENTS_ABOUT, WATCHED, ClusterObjects, FleetReader
from controller.delivery.delivered import delivery_of
from controller.delivery.promotion import Promotion, promotion_of
from controller.delivery.reach import waits_of_others
from controller.delivery.rollouts import PromotedSets, progress_of
from controller.delivery.set_reading import read_sets
from controller.events.commit_pages import commit_in
from controller.kube.reflector import WatchScope, reflectors_of
from controller.page.page_source import (
    FlagChange,
    FlagHistory,
    FleetMember,
    ShownEvent,
    ShownSet,
    VariantRates,
)
from controller.runtime.clock import now, unix_time
from controller.runtime.watch_health import WatchHealth
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from controller.delivery.actions import Wait
    from controller.delivery.set_state import SetState
    from controller.kube.client import Cluster
    from controller.runtime.cache import Cache
    from evaluator.flags.model import FlagSet
    from evaluator.http.messages import Request


GAP: Final = (
    "Changes older than an hour are not shown: the cluster keeps Events no longer. The repository has them."
)


def last_changes(events: Iterable[ShownEvent], flag_set: FlagSet) -> dict[str, FlagChange]:
    """The newest change of each flag; `events`: of the FlagSet, the newest first."""
    changes: dict[str, FlagChange] = {}
    for event in events:
        for key, words in event.differences.items():
            if key in flag_set.flags and key not in changes:
                changes[key] = _change(event, words)
    return changes


def flag_changes_of(events: Iterable[ShownEvent], key: str) -> FlagHistory:
    """All changes of a flag that these Events tell."""
    told = ((event, event.differences) for event in events)
    return FlagHistory(tuple(_change(event, words[key]) for event, words in told if key in words), gap=GAP)


def _change(event: ShownEvent, words: str) -> FlagChange:
    revision, metadata = event.revision, event.metadata
    return FlagChange(
        commit_in(revision) or revision, metadata.get(AUTHOR, ""), metadata.get(SUBJECT, ""), event.at, words
    )


MOST_KEPT: Final = 64
"""Most flag sets that are kept compiled; one with 10,000 flags takes some tens of megabytes."""
MOST_CALLERS: Final = 16
"""Most selections of namespaces whose states are kept."""


@dataclass(frozen=True, slots=True)
class _CompiledSet:
    """The flag set made of an object."""

    of: object
    """The versions of the objects that it was made of."""
    flag_set: FlagSet
    served: CompiledFlagSet


@dataclass(frozen=True, slots=True)
class KnownStates:
    """What was read of some namespaces at a version of their objects."""

    version: str
    states: tuple[SetState, ...]
    other_waits: tuple[Wait, ...]


class ShownSets:
    """Makes flag sets. Used in one thread."""

    def __init__(self, objects: Cache, unix_time: Callable[[], float]) -> None:
        self._objects = objects
        self._unix_time = unix_time
        self._promoted = PromotedSets(objects.get)
        self._compiled: LRUCache[ObjectKey, _CompiledSet] = LRUCache(MOST_KEPT)
        self._states: LRUCache[frozenset[str] | None, KnownStates] = LRUCache(MOST_CALLERS)

    def states(self, namespaces: frozenset[str] | None, version: str) -> KnownStates:
        """The states of the sets in some namespaces, whose objects are at this version; None: in all."""
        known = self._states.get(namespaces)
        if known is None or known.version != version:
            watched = itertools.chain(*(self._objects.of_kind(type_.kind) for type_ in WATCHED))
            objects = [one for one in watched if namespaces is None or one.namespace in namespaces]
            states = read_sets(objects, datetime.fromtimestamp(self._unix_time(), UTC))
            known = KnownStates(version, tuple(states), tuple(waits_of_others(objects, states)))
            self._states[namespaces] = known
        return known

    def of(
        self, resource: Resource, state: SetState, last_changes: Callable[[FlagSet], Mapping[str, FlagChange]]
    ) -> ShownSet | None:
        """The flag set that an object delivers; None where it has none, or not all of its parts are there."""
        try:
            compiled = self._make(resource)
        except (InvalidSpecError, MissingShardsError):
            return None
        return ShownSet(
            f"{resource.namespace}/{resource.name}",
            compiled.flag_set,
            compiled.served,
            state.revision or compiled.flag_set.revision or "",
            state.address,
            last_changes(compiled.flag_set),
            state,
            resource.name,
        )

    def _make(self, resource: Resource) -> _CompiledSet:
        """Raises InvalidSpecError, MissingShardsError."""
        progress = progress_of(self._objects, resource, self._unix_time(), self._promoted)
        shards = [
            version_of(self._objects.get(ObjectKey(flagshard.KIND, resource.namespace, name)))
            for name in flagshard.names(resource.spec)
        ]
        of = (resource.uid, resource.generation, resource.status.get("providers"), tuple(shards), progress)
        known = self._compiled.get(resource.key)
        if known is not None and known.of == of:
            return known
        delivered = delivery_of(resource, flagshard.finder(self._objects.get, resource.namespace), progress)
        compiled = _CompiledSet(of, delivered.desired, compile_flag_set(delivered.flag_set))
        self._compiled[resource.key] = compiled
        return compiled


_KINDS: Final = (FEATURE_FLAG_CONFIGURATION.kind, FEATURE_FLAG.kind)
"""What holds flags; of two objects with one name the first is served."""

MOST_ENVIRONMENTS: Final = 8
"""Most sets in which a flag is compared."""


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """Implements PageSource."""

    cluster: ClusterObjects
    shown: ShownSets
    namespaces: frozenset[str] | None = None
    """Those that the caller may see; None: all."""
    fleet: Mapping[str, Sequence[FleetMember]] = field(default_factory=lambda: NOTHING)
    """Evaluators of all namespaces, by the object that they follow."""
    known_faults: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Another one after each change that the caller may see, and in each process."""
        return self.cluster.version(self.namespaces)

    def sets(self) -> Sequence[str]:
        """NAMESPACE/NAME of each object with flags."""
        return sorted(
            {
                f"{resource.namespace}/{resource.name}"
                for kind in _KINDS
                for resource in self.cluster.objects.of_kind(kind)
                if self._may_see(resource.namespace)
            }
        )

    def shown_set(self, name: str) -> ShownSet | None:
        """The flag set of an object."""
        resource = self._resource(name)
        if resource is None:
            return None
        state = next((state for state in self.states() if state.key == resource.key), None)
        if state is None:
            return None
        events = self._events_about(resource)
        return self.shown.of(resource, state, partial(last_changes, events))

    def environments(self, name: str, key: str) -> Sequence[ShownSet]:
        """The sets that FlagSets of the same source make, MOST_ENVIRONMENTS at most."""
        resource = self._resource(name)
        writer = None if resource is None else self.cluster.objects.get(flagset.writer_key(resource))
        source = None if writer is None else flagset.source_key(writer)
        if writer is None or source is None:
            return ()
        siblings = self.cluster.objects.of_kind(flagset.KIND, writer.namespace)
        names = sorted(
            f"{sibling.namespace}/{flagset.target_name(sibling)}"
            for sibling in siblings
            if flagset.source_key(sibling) == source
        )
        sets = (self.shown_set(other) for other in names[:MOST_ENVIRONMENTS])
        having = [shown for shown in sets if shown is not None and key in shown.flag_set.flags]
        return having if len(having) > 1 else ()

    def history(self, name: str, key: str) -> FlagHistory:
        """The changes of a flag that Events list."""
        resource = self._resource(name)
        return flag_changes_of(() if resource is None else self._events_about(resource), key)

    def rates(self, name: str, keys: Sequence[str]) -> Mapping[str, VariantRates]:
        """Evaluators report theirs to Prometheus alone."""
        del name, keys
        return {}

    def states(self) -> Sequence[SetState]:
        """The state of each set that the caller may see."""
        return self._read().states

    def other_waits(self) -> Sequence[Wait]:
        """What objects wait for that are about no set, as far as the caller may see them."""
        return self._read().other_waits

    def _read(self) -> KnownStates:
        return self.shown.states(self.namespaces, self.version)

    def events(self) -> Sequence[ShownEvent]:
        """The Events that the caller may see."""
        return self.cluster.events(self.namespaces)

    def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """The evaluators of objects that the caller may see."""
        return {
            place: members for place, members in self.fleet.items() if self._may_see(place.partition("/")[0])
        }

    def promotion(self, rollout: str, revision: str) -> Promotion | None:
        """How far a revision is in a FlagRollout."""
        namespace, _, name = rollout.partition("/")
        known = self.cluster.objects.get(ObjectKey(flagrollout.KIND, namespace, name))
        if known is None or not self._may_see(namespace):
            return None
        return promotion_of(self.cluster.objects, known, revision, now())

    def faults(self) -> Sequence[str]:
        """What cannot be read of the cluster."""
        return self.known_faults

    def _may_see(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def _resource(self, name: str) -> Resource | None:
        namespace, _, rest = name.partition("/")
        if not self._may_see(namespace):
            return None
        resources = (self.cluster.objects.get(ObjectKey(kind, namespace, rest)) for kind in _KINDS)
        return next(filter(None, resources), None)

    def _events_about(self, resource: Resource) -> list[ShownEvent]:
        """The Events of the FlagSet that writes an object, the newest first."""
        key = flagset.writer_key(resource)
        return [event for event in self.events() if event.about == str(key)]


PACE_SECONDS: Final = 0.2
"""Seconds in which changes are collected before open pages are notified: each asks for its view anew."""


class ClusterViews:
    """Watches a cluster, and shows it."""

    def __init__(self, cluster: Cluster, namespaces: Collection[str], proxies: str) -> None:
        """`namespaces` are watched one by one; an empty name is all of them. `proxies` as for FleetReader."""
        loop = asyncio.get_running_loop()
        self.namespaces = namespaces
        self.notify: Callable[[], None] = lambda: None
        """Called on the loop soon after changes."""
        self.objects = ClusterObjects(int(unix_time()))
        self.objects.notify = self._notify_soon
        self.health = WatchHealth(time.monotonic)
        self.fleet = FleetReader(proxies, loop.time)
        self._loop = loop
        self._shown = ShownSets(self.objects.objects, unix_time)
        self._changed_at: dict[str, float] = {}
        """When each namespace changed last, in the loop's seconds."""
        self._pending: asyncio.TimerHandle | None = None
        self._pending_fleet: asyncio.TimerHandle | None = None
        scopes = [WatchScope(type_, namespace) for type_ in WATCHED for namespace in namespaces]
        scopes += [
            WatchScope(EVENT, namespace, fields=f"involvedObject.apiVersion={version}")
            for version in EVENTS_ABOUT
            for namespace in namespaces
        ]
        self._reflectors = reflectors_of(cluster.api, self.objects.informer, scopes, self.health)

    async def watch(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def close(self) -> None:
        """Notify no more, and close connections to proxies."""
        for timer in filter(None, (self._pending, self._pending_fleet)):
            timer.cancel()
        await self.fleet.close()

    @property
    def has_listed(self) -> bool:
        """Whether all objects are known."""
        return self.objects.informer.has_listed((type_.kind for type_ in WATCHED), self.namespaces)

    def readiness(self) -> dict[str, object]:
        """The page of `/readyz`."""
        reports = self.health.reports()
        return {"ready": self.has_listed, "watches": [watch.page() for watch in reports]}

    async def show(self, request: Request, namespaces: frozenset[str] | None) -> ClusterPage:
        """What may be seen of these namespaces; None: of all. Asks proxies where evaluators are shown."""
        fleet: Mapping[str, Sequence[FleetMember]] = {}
        if request.path.endswith("/delivery"):
            fleet = await self.fleet.members()
            self._notify_of_newer_fleet()
        return ClusterPage(self.objects, self._shown, namespaces, fleet, self._faults())

    def _faults(self) -> tuple[str, ...]:
        reports = [report for report in self.health.reports() if report.fault or report.is_stale]
        return tuple(
            f"{report.kind} cannot be read from the cluster at the moment"
            f"{f': {report.fault}' if report.fault else ''}. What is shown may be outdated."
            for report in reports
        )

    def _notify_of_newer_fleet(self) -> None:
        """Have pages ask again where proxies were asked before the last change: another may never come."""
        wait = self.fleet.wait_for_answer_after(max(self._changed_at.values(), default=0.0))
        if wait is not None and self._pending_fleet is None:
            self._pending_fleet = self._loop.call_later(wait, self._record_newer_fleet)

    def _record_newer_fleet(self) -> None:
        self._pending_fleet = None
        for namespace, moment in tuple(self._changed_at.items()):
            if self.fleet.wait_for_answer_after(moment) is not None:
                self.objects.record_change(namespace)

    def _notify_soon(self, namespace: str) -> None:
        self._changed_at[namespace] = self._loop.time()
        if self._pending is None:
            self._pending = self._loop.call_later(PACE_SECONDS, self._notify)

    def _notify(self) -> None:
        self._pending = None
        self.notify()
