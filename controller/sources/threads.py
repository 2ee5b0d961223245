"""The threads that wait for git, shared out among namespaces: one whose servers never answer holds up no other."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from controller.runtime.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class Runner(Protocol):
    """Runs in a thread what blocks."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]:
        """What `call` returns or raises."""


class GitThreads:
    """At most so many threads, of which one namespace is given half. Belongs to one loop."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, "git")
        self._shares: Shares[tuple[str, asyncio.Future[None]]] = Shares(most)

    def runner(self, namespace: str) -> Runner:
        """`run` for one namespace."""

        def run(call: Callable[[], T], /) -> Awaitable[T]:
            return self.run(namespace, call)

        return run

    async def run(self, namespace: str, call: Callable[[], T]) -> T:
        """What `call` returns or raises, once it is the namespace's turn.

        Whoever gives up waiting before gives its turn up; after, the thread keeps its place until `call` has ended.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._shares.add(namespace, (namespace, turn))
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            self._shares.remove(namespace, (namespace, turn))
            if not turn.cancelled():
                self._done(namespace)
            raise
        running = self._pool.submit(call)

        def ended(_: Future[T]) -> None:
            # The loop may be gone before a thread is.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._done, namespace)

        running.add_done_callback(ended)
        return await asyncio.wrap_future(running)

    def submit(self, call: Callable[[], None]) -> None:
        """Run in a thread what asks no server, and is soon over."""
        self._pool.submit(call)

    def _done(self, namespace: str) -> None:
        self._shares.done(namespace)
        self._begin()

    def _begin(self) -> None:
        while (next_one := self._shares.take()) is not None:
            namespace, turn = next_one
            if turn.done():
                # Given up, and not taken out yet.
                self._shares.done(namespace)
            else:
                turn.set_result(None)
