"""Slots for concurrent work, shared fairly among namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from controller.runtime.tenancy.shares import FairShare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Places:
    """Limits how many tasks run at a time. One namespace is given half of the places, so that one whose
    servers never answer delays no other; beyond the places there are `firsts`, for namespaces that have none.
    Belongs to one event loop.
    """

    def __init__(
        self, most: int, firsts: int = 0, quota: Callable[[str], int] = lambda _namespace: 0
    ) -> None:
        """`quota`: that a namespace is given at a time in any case; 0: no limit."""
        self._shares: FairShare[tuple[str, asyncio.Future[None]]] = FairShare(
            most, firsts, lambda namespace: quota(str(namespace)) or math.inf
        )

    def usage(self) -> dict[str, int]:
        """Return how many places each namespace has. Any thread may call this."""
        return {str(namespace): count for namespace, count in self._shares.usage().items()}

    def count_waiting(self) -> dict[str, int]:
        """Return how many tasks of each namespace wait for a place."""
        return {str(namespace): count for namespace, count in self._shares.count_waiting().items()}

    @contextlib.asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator[None]:
        """Hold a place for the block, once it is the namespace's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shares.add(namespace, (namespace, turn))
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            self._shares.remove(namespace, (namespace, turn))
            if not turn.cancelled():
                self._release(namespace)
            raise
        try:
            yield
        finally:
            self._release(namespace)

    def _release(self, namespace: str) -> None:
        self._shares.release(namespace)
        self._begin()

    def _begin(self) -> None:
        while (next_one := self._shares.take()) is not None:
            namespace, turn = next_one
            if turn.done():
                # Cancelled, and not removed yet.
                self._shares.release(namespace)
            else:
                turn.set_result(None)
