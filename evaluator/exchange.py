"""Brings flag sets into a store without holding up the loop: all that takes long happens in a thread, before and after the swap.

Before: merging, compiling. After: letting go of the old set, which is hundreds of thousands of objects to free, one flag at a time so
that other threads run in between.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import FlagSet
    from evaluator.heap import Heap
    from evaluator.store import Prepared, Snapshot, Store

T = TypeVar("T")


class Exchange:
    """The one way into a store that serves: one change of its catalog at a time."""

    def __init__(self, store: Store, clock: Callable[[], float], heap: Heap | None = None) -> None:
        """clock: Unix seconds. heap: where the process has a policy for its memory."""
        self.store = store
        self._clock = clock
        self._heap = heap
        self._turn = asyncio.Lock()

    async def read(self, work: Callable[[], T]) -> T:
        """What `work` comes to in a thread; for what makes a flag set of bytes."""
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: Callable[[], T]) -> T:
        if self._heap is None:
            return work()
        with self._heap.growing():
            return work()

    async def put(
        self,
        flag_set: FlagSet | None,
        *,
        source: str | None = None,
        digest: str | None = None,
        along: Callable[[], bool] = lambda: False,
        fresh: bool = True,
    ) -> Snapshot | None:
        """Serve `flag_set` as what `source` holds, None for nothing, and return everything that is served.

        Nothing else runs on the loop between the swap and the return. `source` is named where there are several; `digest` is the
        set's, from a caller that has it. `along` is done right before the swap, for what goes with the set and is not in it; it says
        whether that changed. Who calls says how current it is: `Store.mark_success`, `Store.mark_from_disk`; what is not `fresh` says that
        it is stale, as the store has it before.
        """
        name = source if source is not None else self.store.only_source
        async with self._turn:
            since = None if fresh else self.store.stale_since(name)
            prepared = await self.read(partial(self._prepare, name, flag_set, digest, since))
            before, changed = self.store.snapshot, along()
            snapshot = before if prepared is None else self._serve(prepared, along=changed)
            if changed and snapshot is before:
                self.store.tell_again()
            return snapshot

    async def restate(self, source: str | None = None) -> None:
        """Have what is served of `source` say whether it is stale, as the store has it now. Costs nothing where it does already."""
        name = source if source is not None else self.store.only_source
        since = self.store.stale_since(name)
        if self.store.catalog.with_staleness(name, since) is self.store.catalog:
            return
        async with self._turn:
            following = self.store.catalog.with_staleness(name, since)
            self._serve(await self.read(partial(self.store.prepare, following)))

    def _serve(self, prepared: Prepared, *, along: bool = False) -> Snapshot | None:
        remains = self.store.remains()
        snapshot = self.store.serve(prepared, now=self._clock(), along=along)
        asyncio.get_running_loop().run_in_executor(None, self._let_go, remains)
        return snapshot

    def _prepare(
        self, name: str, flag_set: FlagSet | None, digest: str | None, stale_since: str | None
    ) -> Prepared | None:
        held = self.store.catalog
        following = held.with_source(name, flag_set, digest, stale_since=stale_since)
        return None if following is held else self.store.prepare(following)

    def _let_go(self, remains: list[object]) -> None:
        let_go(remains)
        if self._heap is not None:
            self._heap.settle()


def let_go(remains: list[object]) -> None:
    """Free them one at a time: freed together they would keep every other thread from running until all are gone."""
    while remains:
        remains.pop()


def beside(
    loop: asyncio.AbstractEventLoop,
) -> Callable[[Callable[[], T], Callable[[T], None]], None]:
    """What does its first argument in a thread, then calls the second on `loop` with the result. An error goes to the loop's handler."""

    def aside(work: Callable[[], T], done: Callable[[T], None]) -> None:
        def ended(future: asyncio.Future[T]) -> None:
            if not future.cancelled():
                done(future.result())

        loop.run_in_executor(None, work).add_done_callback(ended)

    return aside
