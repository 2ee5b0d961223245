"""Puts the keys that a change in the cache concerns into the queues of their loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.runtime.reconciling.watches import woken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from controller.api.meta import ObjectKey
    from controller.runtime.objects.cache import Cache, Change
    from controller.runtime.reconciling.loop import Loop
    from controller.runtime.reconciling.watches import Reconciles


class Dispatcher:
    """Wakes objects by what the stages declare."""

    def __init__(
        self,
        cache: Cache,
        stages: Collection[Reconciles],
        loops: Mapping[str, Loop],
        also: Iterable[Callable[[Change], Iterable[ObjectKey]]] = (),
    ) -> None:
        """`loops` by kind. Each of `also` receives every change and returns further objects to reconcile."""
        self._cache = cache
        self._stages = stages
        self._loops = loops
        self._also = tuple(also)

    def changed(self, change: Change) -> None:
        """Take a change that `cache` knows of already. For `Cache.on_change`."""
        before = change.before
        if change.after is None and before is not None and before.key.kind in self._loops:
            self._loops[before.key.kind].gone(before.key)
        keys = woken(self._stages, self._cache, change)
        for each in self._also:
            keys.update(each(change))
        for key in keys:
            self.wake(key)

    def wake(self, key: ObjectKey) -> None:
        """Reconcile an object now, if its kind has a loop."""
        loop = self._loops.get(key.kind)
        if loop is not None:
            loop.wake(key)

    def wake_all(self) -> None:
        """Reconcile everything that is known."""
        for resource in self._cache:
            self.wake(resource.key)
