"""Threads for work that blocks, shared fairly among those that it is done for: namespaces, or clients.

As the default executor of an event loop they run whatever is given to `asyncio.to_thread`, by us or by a
library. Work that waits for others by design has threads of its own: programs, look-ups of names.

A thread cannot be ended: its work has a bound of its own, of bytes or of steps. What has none is for a
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evaluator.host.shares import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

T = TypeVar("T")

THREADS: Final = 8
"""Half of them are one namespace's at most. More would delay the event loop, which takes turns with them."""

_GROUP: ContextVar[Hashable] = ContextVar("the owner that work is done for", default="")


@contextlib.contextmanager
def work_for(owner: Hashable) -> Iterator[None]:
    """Count what the block, and the tasks that it starts, do in threads as that of `owner`."""
    token = _GROUP.set(owner)
    try:
        yield
    finally:
        _GROUP.reset(token)


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    group: Hashable
    future: Future[Any]
    call: Callable[[], Any]


class FairThreads(ThreadPoolExecutor):
    """Runs work in at most `threads` threads, and beyond them in `firsts` for owners that have none."""

    def __init__(
        self, threads: int, firsts: int | None = None, *, resource: str, most_waiting: float = math.inf
    ) -> None:
        """`firsts`: None for as many as `threads`. `resource`: the name in metrics. `most_waiting`: beyond so
        many `is_full`.
        """
        firsts = threads if firsts is None else firsts
        super().__init__(threads + firsts, resource)
        self._mutex = threading.Lock()
        self._fair: FairShare[_Work] = FairShare(
            threads, firsts, resource=resource, most_waiting=most_waiting
        )

    def is_full(self, owner: Hashable) -> bool:
        """Whether no more work of the owner may wait."""
        with self._mutex:
            return self._fair.is_full(owner)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `fn` once it is the owner's turn; see `work_for`. Work that is cancelled while it waits makes
        room at once.
        """
        work = _Work(_GROUP.get(), Future(), partial(fn, *args, **kwargs))
        with self._mutex:
            self._fair.add(work.group, work)
        work.future.add_done_callback(partial(self._forget, work))
        self._begin()
        return work.future

    def _forget(self, work: _Work, future: Future[Any]) -> None:
        if future.cancelled():
            with self._mutex:
                self._fair.remove(work.group, work)

    def _begin(self) -> None:
        while True:
            with self._mutex:
                work = self._fair.take()
            if work is None:
                return
            super().submit(self._do, work)

    def _do(self, work: _Work) -> None:
        try:
            if work.future.set_running_or_notify_cancel():
                _complete(work)
        finally:
            with self._mutex:
                self._fair.release(work.group)
            # After the end of the pool nobody waits for what is left.
            with contextlib.suppress(RuntimeError):
                self._begin()


def _complete(work: _Work) -> None:
    try:
        result = work.call()
    except BaseException as error:  # noqa: BLE001 - the caller receives it
        work.future.set_exception(error)
    else:
        work.future.set_result(result)


def share_threads() -> None:
    """Make the default executor of the running event loop a fair one."""
    asyncio.get_running_loop().set_default_executor(FairThreads(THREADS, resource="threads"))
