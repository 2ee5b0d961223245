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

    from evaluator.gc_policy import GcPolicy
    from evaluator.store import CompiledCatalog, Report, Snapshot, Store

log = logging.getLogger(__name__)

T = TypeVar("T")


class Exchange:
    """Applies reports to a store that serves, one at a time."""

    def __init__(self, store: Store, clock: Callable[[], float], gc_policy: GcPolicy | None = None) -> None:
        """clock: Unix seconds. gc_policy: where the process has a policy for its memory."""
        self.store = store
        self._clock = clock
        self._gc_policy = gc_policy
        self._turn = asyncio.Lock()

    async def read(self, work: Callable[[], T]) -> T:
        """The result of `work`, which makes a flag set of bytes, in a thread."""
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: Callable[[], T]) -> T:
        with nullcontext() if self._gc_policy is None else self._gc_policy.growing():
            return work()

    async def apply(self, report: Report) -> Snapshot | None:
        """`Store.apply`, prepared in a thread. Nothing else runs on the loop between swap and return."""
        async with self._turn:
            if report.content is None and self.store.following(report) is self.store.catalog:
                return self.store.apply(report, now=self._clock())
            prepared = await self._prepared(report)
            remains = self.store.remains()
            snapshot = self.store.apply(report, prepared, now=self._clock())
            asyncio.get_running_loop().run_in_executor(None, self._let_go, remains)
            return snapshot

    async def _prepared(self, report: Report) -> CompiledCatalog:
        try:
            return await self.read(lambda: self.store.prepare(self.store.following(report)))
        except Exception:
            if report.content is not None:
                raise
            # Health is known all the same; the next report tries again.
            log.exception("answers cannot say whether %s is stale", report.source)
            return self.store.served

    def _let_go(self, remains: list[object]) -> None:
        let_go(remains)
        if self._gc_policy is not None:
            self._gc_policy.settle()


def let_go(remains: list[object]) -> None:
    """Free them one at a time: freed together they would keep every other thread waiting for long."""
    while remains:
        remains.pop()


def run_in_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """Do `work` in a thread, then call `done` with its result on the running loop, which handles an error."""

    def ended(future: asyncio.Future[T]) -> None:
        if not future.cancelled():
            done(future.result())

    asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(ended)
