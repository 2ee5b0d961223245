"""The newest state of every object that was seen, with named indexes, and the port by which stages write
objects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from cachetools import FIFOCache

from controller.api.fields import keep_parsed
from controller.api.meta import ObjectKey, Resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    React = Callable[["Change"], object]
    Choose = Callable[[list[Resource]], list[Resource]]
    Entry = tuple[str, str, str]

REMEMBERED: Final = 4096
"""Deleted objects whose uids are kept, so that a late answer to a write does not bring one back."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an object from `before` to `after`; None: it does not exist. At most one is None."""

    before: Resource | None
    after: Resource | None

    @property
    def latest(self) -> Resource:
        """Return the object as it is, or as it was when it was deleted."""
        resource = self.after or self.before
        assert resource is not None  # noqa: S101 - see the class
        return resource


@dataclass(frozen=True, slots=True)
class Index:
    """Objects of some kinds by the names that each refers to, within its namespace or in all."""

    name: str
    kinds: frozenset[str]
    references: Callable[[Resource], Iterable[str]]
    """Return the names that list one object. Must not fail: a spec may be malformed."""
    everywhere: bool = False
    """Whether what it refers to may be in another namespace: it is looked for under the namespace ``."""


class Cache:
    """Objects by key, by kind and namespace, and by each index. Versions are compared, so an event that comes
    late changes nothing.
    """

    def __init__(self, indexes: Iterable[Index] = (), *, remembered: int = REMEMBERED) -> None:
        """`remembered`: how many deleted objects are known as such."""
        self._reactions: list[React] = []
        self._kinds: dict[str, dict[str, dict[ObjectKey, Resource]]] = {}
        self._deleted: FIFOCache[str, None] = FIFOCache(remembered)
        self._indexes = tuple(indexes)
        self._indexed: dict[Entry, dict[ObjectKey, Resource]] = {}
        self._chosen: dict[Entry, dict[Choose, list[Resource]]] = {}
        """What was chosen of an entry of an index, until an object comes or goes."""

    def react(self, reaction: React) -> None:
        """Call `reaction` after every change, whether a watch or our own write brought it, after those that
        were registered before.
        """
        self._reactions.append(reaction)

    def was_deleted(self, uid: str) -> bool:
        """Return whether an object with this uid was deleted, or another made in its place."""
        return uid in self._deleted

    def __iter__(self) -> Iterator[Resource]:
        # A scrape iterates in a thread while others write; `list` makes its copy in one step.
        spaces = [objects for kind in list(self._kinds.values()) for objects in list(kind.values())]
        return iter([resource for objects in spaces for resource in list(objects.values())])

    def __len__(self) -> int:
        return sum(len(objects) for namespaces in self._kinds.values() for objects in namespaces.values())

    def get(self, key: ObjectKey) -> Resource | None:
        """Return the object as last seen, or None."""
        return self._kinds.get(key.kind, {}).get(key.namespace, {}).get(key)

    def of_kind(self, kind: str, namespace: str | None = None) -> list[Resource]:
        """Return all objects of `kind`, in one namespace or in all, in no order."""
        namespaces = self._kinds.get(kind, {})
        if namespace is not None:
            return list(namespaces.get(namespace, {}).values())
        # A scrape asks in a thread, as above.
        return [resource for objects in list(namespaces.values()) for resource in list(objects.values())]

    def find(self, index: Index, namespace: str, name: str) -> list[Resource]:
        """The objects in `namespace` that `index` lists under `name`, in no order."""
        return list(self._indexed.get((index.name, namespace, name), {}).values())

    def choose(self, index: Index, namespace: str, name: str, choose: Choose) -> list[Resource]:
        """Return what `choose` returns of those objects. It is asked once until one of them comes or goes, so
        it may look at nothing but what an object keeps for life: its name, and when it was created.
        """
        entry = (index.name, namespace, name)
        chosen = self._chosen.get(entry, {})
        if choose not in chosen:
            chosen[choose] = choose(self.find(index, namespace, name))
            if entry in self._indexed:
                self._chosen[entry] = chosen
        return chosen[choose]

    def learn(self, resource: Resource) -> bool:
        """Store `resource`; False if a newer state is stored."""
        known = self.get(resource.key)
        # The answer to a write of ours may come after the event that the object was deleted.
        if resource.uid in self._deleted:
            return False
        if known is not None and known.uid == resource.uid and _older(resource, known):
            return False
        self.put(resource)
        return True

    def put(self, resource: Resource) -> None:
        """Store `resource`, whatever was known of it: for the only watch that reports an object, in order.
        Also after a restore of etcd, when versions begin anew, and where an object that was gone is there
        again.
        """
        known = self.get(resource.key)
        objects = self._kinds.setdefault(resource.key.kind, {}).setdefault(resource.namespace, {})
        keep_parsed(known, resource)
        if known is not None and known.uid not in {"", resource.uid}:
            self._deleted[known.uid] = None
        objects[resource.key] = resource
        self._notify(Change(known, resource))

    def forget(self, key: ObjectKey) -> None:
        """Remove a deleted object."""
        known = self._kinds.get(key.kind, {}).get(key.namespace, {}).pop(key, None)
        if known is None:
            return
        if known.uid:
            self._deleted[known.uid] = None
        self._notify(Change(known, None))

    def _notify(self, change: Change) -> None:
        for index in self._indexes:
            if change.latest.key.kind in index.kinds:
                self._reindex(index, change)
        for reaction in self._reactions:
            reaction(change)

    def _reindex(self, index: Index, change: Change) -> None:
        namespace = "" if index.everywhere else change.latest.namespace
        before, after = (
            frozenset[str]() if resource is None else frozenset(index.references(resource))
            for resource in (change.before, change.after)
        )
        for name in before - after:
            self._unlist((index.name, namespace, name), change.latest.key)
        for name in after:
            self._list((index.name, namespace, name), change, listed=name in before)

    def _unlist(self, entry: Entry, key: ObjectKey) -> None:
        self._chosen.pop(entry, None)
        objects = self._indexed.get(entry, {})
        objects.pop(key, None)
        if not objects:
            self._indexed.pop(entry, None)

    def _list(self, entry: Entry, change: Change, *, listed: bool) -> None:
        assert change.after is not None  # noqa: S101 - it is listed
        self._indexed.setdefault(entry, {})[change.after.key] = change.after
        if listed and change.before is not None and change.before.uid == change.after.uid:
            for choose, chosen in self._chosen.get(entry, {}).items():
                self._chosen[entry][choose] = [
                    change.after if one is change.before else one for one in chosen
                ]
        else:
            self._chosen.pop(entry, None)


def _older(one: Resource, other: Resource) -> bool:
    try:
        return int(one.resource_version) < int(other.resource_version)
    except ValueError:
        return False


class Applier(Protocol):
    """Applies and deletes objects."""

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """Apply `manifest` as field manager `manager`. Returns (object, managers whose manual
        changes it overwrote). Raises Setback: Passing (ChangedMeanwhile) for a manifest `at_version` whose
        object is at another.
        """

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """Delete an object, if it is there and, where `uid` is given, still that one. Raises Setback: Passing
        (ChangedMeanwhile) where it is not at the `version` that is given.
        """


def at_version(manifest: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return the manifest with the version of the object that it was decided on; empty: there is none. A
    leader that was paused would overwrite what its successor wrote.
    """
    if not version:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}


async def _nothing(_: Resource) -> None:
    """The default observer of what is applied: it does nothing."""


class MemoryCluster:
    """Implements `Applier` and `StatusWriter`. It has no conflicts or Leases, and
    keeps uid, generation and resourceVersion only as far as cache and loop need them.
    """

    def __init__(self, objects: Cache, applied: Callable[[Resource], Awaitable[None]] = _nothing) -> None:
        """`applied` is awaited after each apply, with the object as it is then."""
        self.objects = objects
        self._applied = applied
        self._version = 0

    def put(self, body: Mapping[str, Any]) -> Resource:
        """Write metadata and spec, as a user does; the status stays."""
        written = Resource.of(body)
        known = self.objects.get(written.key)
        version = self._next()
        if known is None:
            resource = replace(written, uid=written.uid or version, generation=1, resource_version=version)
        else:
            generation = known.generation + (known.spec != written.spec)
            resource = replace(
                written, uid=known.uid, generation=generation, resource_version=version, status=known.status
            )
        # Nothing comes late from the only writer; and an object that was gone may return with its uid.
        self.objects.put(resource)
        return resource

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """Make `manifest` the object. There are no other writers, so nothing conflicts."""
        written = {**manifest["metadata"], "managedFields": [{"manager": manager}]}
        resource = self.put({**manifest, "metadata": written})
        # Of a kind whose status is written with its spec, such as FlagReceipt.
        if "status" in manifest:
            resource = await self.write_status(resource, manifest["status"]) or resource
        await self._applied(resource)
        metadata = {
            **written,
            "uid": resource.uid,
            "generation": resource.generation,
            "resourceVersion": resource.resource_version,
        }
        return {**manifest, "metadata": metadata, "status": resource.status}, ""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """Forget an object, if it is there and, where `uid` is given, still that one."""
        del api_version, version
        known = self.objects.get(ObjectKey(kind, namespace, name))
        if known is not None and uid in {"", known.uid}:
            self.objects.forget(known.key)

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's, and return it as it is now; None if it is gone."""
        known = self.objects.get(resource.key)
        if known is None or known.uid != resource.uid:
            return None
        written = replace(known, status=status, resource_version=self._next())
        self.objects.put(written)
        return written

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def manifest_of(resource: Resource) -> dict[str, Any]:
    """Return the object without fields that only one run knows, so that another run may apply it."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.key.kind,
        "metadata": {
            "name": resource.name,
            "namespace": resource.namespace,
            "labels": dict(resource.labels),
            "annotations": dict(resource.annotations),
            "ownerReferences": [dict(owner) for owner in resource.owners],
        },
        "spec": dict(resource.spec),
    }
