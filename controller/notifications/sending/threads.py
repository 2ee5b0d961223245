"""A thread pool for blocking senders, shared fairly among namespaces."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from controller.runtime.tenancy.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

THREADS: Final = 64
"""Messages sent at a time. Other work has threads of its own."""


class Threads:
    """Belongs to one event loop."""

    def __init__(self, name: str) -> None:
        """`name`: what the threads are called."""
        self._pool = ThreadPoolExecutor(THREADS, name)
        self._places = Places(THREADS)

    def close(self) -> None:
        """Refuse further work."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(
        self, namespace: str, seconds: float, work: Callable[[float], T], hang_up: Callable[[], None]
    ) -> T:
        """Return the result of `work`, which has `seconds` from the moment that it gets a thread. Raises
        TimeoutError, and the exceptions of `work`.

        `hang_up` ends a thread whose caller no longer waits; its place is free only after that.
        """
        async with self._places.place(namespace):
            async with asyncio.timeout(seconds):
                running = asyncio.get_running_loop().run_in_executor(self._pool, work, seconds)
                try:
                    return await asyncio.shield(running)
                finally:
                    hang_up()
                    await asyncio.wait([running])
