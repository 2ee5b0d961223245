"""Brings flag sets into a store without holding up the loop: all that takes long happens in a thread, before
and after the swap.

Before: merging, compiling. After: letting go of the old set, which is hundreds of thousands of objects to
free, one flag at a time so that other threads run in between.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.host.gc_policy import GcPolicy
    from evaluator.store.store import CompiledCatalog, Report, Snapshot, Store

log = logging.getLogger(__name__)

T = TypeVar("T")


class SnapshotSwapper:
    """Applies reports to a store that is being served, one at a time."""

    def __init__(self, store: Store, clock: Callable[[], float], gc_policy: GcPolicy | None = None) -> None:
        """clock: Unix seconds. gc_policy: the process's policy for garbage collection, if it has one."""
        self.store = store
        self._clock = clock
        self._gc_policy = gc_policy
        self._turn = asyncio.Lock()

    async def read(self, work: Callable[[], T]) -> T:
        """Run `work`, which decodes a flag set, in a thread; return its result."""
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: Callable[[], T]) -> T:
        with nullcontext() if self._gc_policy is None else self._gc_policy.pause_full_collections():
            return work()

    async def apply(self, report: Report) -> Snapshot | None:
        """Prepare a report in a thread, then call `Store.apply`; return before any other task runs."""
        async with self._turn:
            if report.content is None and self.store.catalog_after(report) is self.store.catalog:
                return self.store.apply(report, now=self._clock())
            prepared = await self._prepare(report)
            objects = self.store.served_objects()
            snapshot = self.store.apply(report, prepared, now=self._clock())
            asyncio.get_running_loop().run_in_executor(None, self._free, objects)
            return snapshot

    async def _prepare(self, report: Report) -> CompiledCatalog:
        try:
            return await self.read(lambda: self.store.prepare(self.store.catalog_after(report)))
        except Exception:
            if report.content is not None:
                raise
            # The health is applied anyway; the next report tries again.
            log.exception("answers cannot say whether %s is stale", report.source)
            return self.store.compiled_catalog

    def _free(self, objects: list[object]) -> None:
        free_one_by_one(objects)
        if self._gc_policy is not None:
            self._gc_policy.settle()


def free_one_by_one(objects: list[object]) -> None:
    """Free the objects one at a time: freed together, they would block every other thread for long."""
    while objects:
        objects.pop()


def run_in_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Do `work` in a thread, then call `done` with its result on the running loop, which handles an error."""

    def end(future: asyncio.Future[T]) -> None:
        if not future.cancelled():
            done(future.result())

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(end)
