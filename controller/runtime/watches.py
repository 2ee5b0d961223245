"""Declarations of stages: the kind that each reconciles, and the changes of other objects that wake it. The
dispatcher wakes the loops accordingly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api.meta import REQUESTS, ObjectKey, Resource
from controller.runtime.shards import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from controller.api.kind import ResourceType
    from controller.runtime.cache import Cache, Change, Index
    from controller.runtime.loop import Loop


@dataclass(frozen=True, slots=True)
class Watch:
    """Objects of other kinds whose changes wake objects of the reconciled kind."""

    kinds: frozenset[str]
    changed: Callable[[Resource | None], object]
    """Returns what matters of such an object: nothing wakes while that is equal. None: no such object."""
    keys: Callable[[Cache, Change], Iterable[ObjectKey]]
    """The objects to reconcile."""


@dataclass(frozen=True, slots=True)
class Reconciles:
    """A kind with a reconciler. Its own objects are reconciled when they are new, when their generation
    changes, when a reconcile is requested by annotation, and when their deletion begins.
    """

    type: ResourceType
    wakes: tuple[Watch, ...] = ()
    indexes: tuple[Index, ...] = ()
    """The indexes of the cache that the stage uses."""


def keys_listed_by(
    index: Index, name: Callable[[Resource], str] = lambda changed: changed.name
) -> Callable[[Cache, Change], Iterable[ObjectKey]]:
    """Return a function for `Watch.keys`: it returns the objects that `index` lists under the `name` of a
    changed one, in its namespace unless the index covers all.
    """

    def keys(cache: Cache, change: Change) -> Iterable[ObjectKey]:
        changed = change.latest
        namespace = "" if index.everywhere else changed.namespace
        return [resource.key for resource in cache.find(index, namespace, name(changed))]

    return keys


def indexes_of(stages: Iterable[Reconciles]) -> list[Index]:
    """Each index that a stage uses, once."""
    return list({index.name: index for stage in stages for index in stage.indexes}.values())


def keys_to_wake(stages: Iterable[Reconciles], cache: Cache, change: Change) -> set[ObjectKey]:
    """Return the objects to reconcile after `change`, which is already in `cache`."""
    keys: set[ObjectKey] = set()
    kind = change.latest.key.kind
    for stage in stages:
        if stage.type.kind == kind and change.after is not None and _asks(change.before, change.after):
            keys.add(change.after.key)
        for watch in stage.wakes:
            if kind in watch.kinds and watch.changed(change.before) != watch.changed(change.after):
                keys.update(watch.keys(cache, change))
    return keys


class Dispatcher:
    """Wakes objects by what the stages declare. It follows its cache from the beginning."""

    def __init__(
        self,
        cache: Cache,
        stages: Collection[Reconciles],
        loops: Mapping[str, Loop],
        also: Iterable[Callable[[Change], Iterable[ObjectKey]]] = (),
        shard: Shard = WHOLE,
    ) -> None:
        """`loops` by kind. Each of `also` receives every change and returns further objects to reconcile.
        Those of other shards are left to them.
        """
        self._shard = shard
        self._cache = cache
        self._stages = stages
        self._loops = loops
        self._also = tuple(also)
        cache.react(self.on_change)

    def on_change(self, change: Change) -> None:
        """Handle a change that is already in the cache."""
        before, after, key = change.before, change.after, change.latest.key
        moved = before is not None and self._shard.owns(before) and after is not None
        if key.kind in self._loops and (after is None or (moved and not self._shard.owns(after))):
            self._loops[key.kind].forget(key)
        keys = keys_to_wake(self._stages, self._cache, change)
        labels_of = self._shard.labels_of
        if before is not None and after is not None and labels_of(before.labels) != labels_of(after.labels):
            keys.add(key)
        for keys_of in self._also:
            keys.update(keys_of(change))
        for key in keys:
            self.wake(key)

    def wake(self, key: ObjectKey) -> None:
        """Reconcile an object now, if its kind has a loop."""
        resource = self._cache.get(key)
        if key.kind in self._loops and (resource is None or self._shard.owns(resource)):
            self._loops[key.kind].wake(key)

    def wake_all(self) -> None:
        """Reconcile all cached objects."""
        for resource in self._cache:
            self.wake(resource.key)


def _asks(before: Resource | None, after: Resource) -> bool:
    """Return whether the object's own change is a reason to reconcile it."""
    if before is None or before.uid != after.uid or before.generation != after.generation:
        return True
    requested = any(after.annotations.get(name) != before.annotations.get(name) for name in REQUESTS)
    return requested or after.deleting != before.deleting


def cycle(start: Resource, objects: Cache, awaited: Callable[[Resource], Iterable[str]]) -> list[str]:
    """Return the names of a cycle through `start`, which is at both ends, or nothing. `awaited`: the names of
    the objects of the same kind and namespace that one waits for.
    """
    trails: list[list[str]] = [[start.name]]
    seen: set[str] = set()
    while trails:
        trail = trails.pop()
        last = trail[-1]
        resource = objects.get(ObjectKey(start.key.kind, start.namespace, last)) if len(trail) > 1 else start
        for name in awaited(resource) if resource is not None else ():
            if name == start.name:
                return [*trail, name]
            if name not in seen:
                seen.add(name)
                trails.append([*trail, name])
    return []
