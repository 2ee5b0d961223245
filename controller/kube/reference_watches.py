"""Watches Secrets and ConfigMaps without their content: one watch for each namespace where an object refers
to one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.api.kinds import SECRET
from controller.api.objects.meta import ObjectKey
from controller.kube.reflector import Reflector, WatchScope
from controller.runtime.objects.cache import take

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kubernetes.aio.client.api_client import ApiClient

    from controller.api.kinds import ResourceType
    from controller.runtime.objects.cache import Cache, Change, Index
    from controller.runtime.objects.watch_health import WatchHealth


@dataclass(frozen=True, slots=True)
class _Feed:
    """Takes them into the cache; see `reflector.Sink`."""

    cache: Cache
    type: ResourceType

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        del kind
        take(self.cache, self.type, body)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        self.cache.forget(ObjectKey(kind, namespace, name))

    def end_listing(self, kind: str, namespace: str) -> None:
        """Nothing to do: readers of these objects ask the API server."""


class ReferenceWatches:
    """Watches a kind in each namespace with an object that refers to one of that kind."""

    def __init__(  # noqa: PLR0913
        self,
        api: ApiClient,
        cache: Cache,
        indexes: Iterable[Index],
        health: WatchHealth,
        *,
        type_: ResourceType = SECRET,
        labels: str = "",
        everywhere: bool = False,
    ) -> None:
        """`indexes` list objects by those of `type_` that they refer to. `labels`: a selector of those
        that matter, empty for all; `everywhere`: one watch of all, whatever namespace refers to one.
        """
        self._api = api
        self._cache = cache
        self._indexes = tuple(indexes)
        self._health = health
        self._type = type_
        self._labels = labels
        self._everywhere = everywhere
        self._referring: dict[str, set[ObjectKey]] = {}
        """Objects that refer to one, by namespace."""
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._wanted = asyncio.Event()

    @property
    def namespaces(self) -> list[str]:
        """Return the watched namespaces, sorted."""
        return sorted(self._watching)

    def on_change(self, change: Change) -> tuple[()]:
        """Handle a change of any object. Wakes nothing."""
        resource = change.latest
        indexes = [index for index in self._indexes if resource.key.kind in index.kinds]
        if not indexes:
            return ()
        after = change.after
        refers = after is not None and any(name for index in indexes for name in index.references(after))
        place = "" if self._everywhere else resource.namespace
        referring = self._referring.setdefault(place, set())
        (referring.add if refers else referring.discard)(resource.key)
        if not referring:
            del self._referring[place]
        if self._referring.keys() != self._watching.keys():
            self._wanted.set()
        return ()

    async def run(self) -> None:
        """Start and stop watches as references come and go, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                for namespace in self._watching.keys() - self._referring.keys():
                    await self._stop(namespace)
                for namespace in self._referring.keys() - self._watching.keys():
                    self._start(namespace)
        finally:
            for namespace in tuple(self._watching):
                await self._stop(namespace)
            # The next run begins all watches anew.
            self._wanted.set()

    def _start(self, namespace: str) -> None:
        view = WatchScope(self._type, namespace, labels=self._labels)
        reflector = Reflector(self._api, view, _Feed(self._cache, self._type))
        self._watching[namespace] = asyncio.create_task(reflector.run())
        self._health.follow(self._type.plural, view.path, reflector)

    async def _stop(self, namespace: str) -> None:
        task = self._watching.pop(namespace)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._health.unfollow(WatchScope(self._type, namespace).path)
        for resource in self._cache.of_kind(self._type.kind, namespace):
            self._cache.forget(resource.key)
