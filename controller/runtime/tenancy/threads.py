"""Threads for work that blocks, shared fairly among the namespaces that it is done for.

As the default executor of an event loop they run whatever is given to `asyncio.to_thread`, by us or by a
library. Work that waits for others by design has pools of its own: programs, look-ups of names, alerts.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.runtime.tenancy.shares import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

T = TypeVar("T")

THREADS: Final = 8
"""Half of them are one namespace's at most. More would delay the event loop, which takes turns with them."""

_GROUP: ContextVar[Hashable] = ContextVar("the namespace that work is done for", default="")


@contextlib.contextmanager
def work_for(namespace: Hashable) -> Iterator[None]:
    """Count what the block, and the tasks that it starts, do in threads as that of `namespace`."""
    token = _GROUP.set(namespace)
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
    """Runs work in at most `threads` threads, and in as many beyond them for namespaces that have none."""

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__(2 * threads, "work")
        self._mutex = threading.Lock()
        self._fair: FairShare[_Work] = FairShare(threads, threads)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run `fn` once it is the namespace's turn; see `work_for`."""
        work = _Work(_GROUP.get(), Future(), partial(fn, *args, **kwargs))
        with self._mutex:
            self._fair.add(work.group, work)
        self._begin()
        return work.future

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
    asyncio.get_running_loop().set_default_executor(FairThreads())
