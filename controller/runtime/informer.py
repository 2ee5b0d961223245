"""Keeps a store at what a cluster has, by what engines report of it.

An engine watches objects of some scope: kopf those of the controller's own kinds, a Reflector all others.
Each tells an `Informer` of every object that is there and of each of its changes, of every deletion, those
during a cut included, and of the end of each list; and `WatchHealth`, how current that is. The informer keeps
what a transform leaves of each object in one store, where others find it and react to its changes.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from controller.api.meta import ObjectKey, Resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from controller.api.kind import ResourceType
    from controller.runtime.cache import Cache

log = logging.getLogger(__name__)

Transform = Callable[[Mapping[str, Any], Resource | None], Resource]
"""Makes what is kept of an object of its body and of what is kept of it until now. KeyError, TypeError and
AttributeError say that the body is malformed.
"""


class Engine(Protocol):
    """Reports to an informer what a cluster has."""

    async def run(self) -> None:
        """Watch until cancelled."""


class Informer:
    """The one receiver of what engines report."""

    def __init__(self, store: Cache, transforms: Mapping[str, Transform], *, shared: bool = False) -> None:
        """`transforms` by kind. `shared`: whether answers to our writes enter the store, too: what is
        reported may then be older than what is there, and changes nothing.
        """
        self.store = store
        self._transforms = transforms
        self._shared = shared
        self._listed: set[tuple[str, str]] = set()
        self._reactions: list[Callable[[], None]] = []
        self._progress = asyncio.Event()

    # -- called by engines

    def learn(self, kind: str, body: Mapping[str, Any]) -> ObjectKey:
        """Store an object; return its key. A malformed one is logged and affects no other."""
        meta = body.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        key = ObjectKey(kind, str(meta.get("namespace") or ""), str(meta.get("name") or ""))
        known = self.store.get(key)
        try:
            resource = self._transforms[kind](body, known)
            if self._shared:
                self.store.learn(resource)
            else:
                # Also after a restore of etcd, when versions begin anew.
                self.store.put(resource)
        except (KeyError, TypeError, AttributeError):
            # Also where one who reacts reads what a transform keeps as it is.
            log.exception("a malformed %s was sent", kind)
            return key
        return resource.key

    def forget(self, key: ObjectKey, uid: str = "") -> None:
        """Remove a deleted object; with a uid, only that very one."""
        known = self.store.get(key)
        if known is not None and uid in {"", known.uid}:
            self.store.forget(key)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of a kind were reported: of that namespace, or of all if it is empty."""
        self._listed.add((kind, namespace))
        self._progress.set()
        self._progress = asyncio.Event()
        for reaction in self._reactions:
            reaction()

    # -- asked by others

    def has_listed(self, kinds: Iterable[str], namespaces: Collection[str]) -> bool:
        """Return whether all objects of these kinds were reported, of each of these namespaces, as they are
        watched: before that, none can be called missing. An empty name: of all namespaces.
        """
        return self._listed.issuperset(itertools.product(kinds, namespaces))

    async def wait_listed(self, kinds: Collection[str], namespaces: Collection[str]) -> None:
        """Wait until `has_listed`."""
        while not self.has_listed(kinds, namespaces):
            await self._progress.wait()

    def react_to_list(self, reaction: Callable[[], None]) -> None:
        """Call `reaction` after the end of each list."""
        self._reactions.append(reaction)


def transforms_of(types: Iterable[ResourceType]) -> dict[str, Transform]:
    """Return those that keep objects whole; of kinds without content, only which object it is."""
    return {type_.kind: whole(type_) if type_.content else identity(type_) for type_ in types}


def whole(type_: ResourceType) -> Transform:
    """Return the transform that keeps metadata, spec and status. A list leaves out what its items are."""

    def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
        kept = {name: body[name] for name in ("spec", "status") if name in body}
        named = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": body["metadata"]}
        return Resource.of({**named, **kept})

    return transform


def body_as_spec(type_: ResourceType) -> Transform:
    """Return the transform that keeps the whole body as `spec`, of a kind that has none."""

    def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
        named = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": body["metadata"]}
        return Resource.of({**named, "spec": body})

    return transform


def identity(type_: ResourceType) -> Transform:
    """Return the transform that keeps which object it is, and its version."""

    def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
        meta = body["metadata"]
        key = ObjectKey(type_.kind, meta.get("namespace") or "", meta["name"])
        version = meta.get("resourceVersion", "")
        return Resource(key, meta.get("uid", ""), 0, version, api_version=type_.api_version)

    return transform
