"""Slots for concurrent work, shared fairly among those that it is done for: namespaces, or clients."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from evaluator.host.shares import FairShare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Places:
    """Limits how many tasks run at a time. One owner, such as a namespace, is given half of the places, so
    that one whose servers never answer delays no other; beyond the places there are `firsts`, for owners that
    have none. Belongs to one event loop.
    """

    def __init__(
        self,
        most: int,
        firsts: int = 0,
        quota: Callable[[str], int] = lambda _owner: 0,
        *,
        resource: str = "",
        most_waiting: float = math.inf,
    ) -> None:
        """`quota`: that an owner is given at a time in any case; 0: no limit. `resource`: the name in
        metrics. `most_waiting`: beyond so many tasks `is_full`.
        """
        self._shares: FairShare[tuple[str, asyncio.Future[None]]] = FairShare(
            most,
            firsts,
            lambda owner: quota(str(owner)) or math.inf,
            resource=resource,
            most_waiting=most_waiting,
        )

    def is_full(self, owner: str) -> bool:
        """Whether no more tasks of the owner may wait."""
        return self._shares.is_full(owner)

    def usage(self) -> dict[str, int]:
        """Return how many places each owner has. Any thread may call this."""
        return {str(owner): count for owner, count in self._shares.usage().items()}

    def count_waiting(self) -> dict[str, int]:
        """Return how many tasks of each owner wait for a place."""
        return {str(owner): count for owner, count in self._shares.count_waiting().items()}

    @contextlib.asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """Hold a place for the block, once it is the owner's turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shares.add(owner, (owner, turn))
        self._begin()
        try:
            await turn
        except asyncio.CancelledError:
            self._shares.remove(owner, (owner, turn))
            if not turn.cancelled():
                self._release(owner)
            raise
        try:
            yield
        finally:
            self._release(owner)

    def _release(self, owner: str) -> None:
        self._shares.release(owner)
        self._begin()

    def _begin(self) -> None:
        while (next_one := self._shares.take()) is not None:
            owner, turn = next_one
            if turn.done():
                # Cancelled, and not removed yet.
                self._shares.release(owner)
            else:
                turn.set_result(None)
