"""The limits of each namespace and of a rate, and the places for concurrent work, which groups share
fairly.

Counts of objects are limited by Kubernetes' ResourceQuota.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.host.shares import FairShare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """What each namespace may have; 0: no limit."""

    artifact_bytes: int = 0
    """Bytes of all artifacts together."""
    mirror_bytes: int = 0
    """Bytes of all mirrors of Git repositories together."""
    git_processes: int = 0
    """Git programs that run at the same time."""
    streams: int = 0
    """Open streams of its callers at one proxy."""
    receipts: int = 0
    """Receipts of its pods that one proxy keeps: one for each flag set that a pod serves."""


UNLIMITED: Final = NamespaceLimits()


@dataclass(slots=True)
class Pace:
    """A rate limit: a burst, then a steady rate. `now`: seconds of a monotonic clock."""

    burst: float = 20.0
    per_second: float = 2.0
    _used: float = 0.0
    _since: float = 0.0

    def wait(self, now: float, most: float = math.inf) -> float:
        """Reserve one action; return the seconds to wait before it may be done. Where these are more than
        `most`, nothing is reserved.
        """
        self._used = max(0.0, self._used - (now - self._since) * self.per_second)
        self._since = now
        seconds = max(0.0, (self._used + 1.0 - self.burst) / self.per_second)
        if seconds <= most:
            self._used += 1.0
        return seconds


class Places:
    """Limits how many tasks run at a time. One owner, such as a namespace, is given half of the places, so
    that one whose servers never answer delays no other; beyond the places there are `firsts`, for owners that
    have none. Belongs to one event loop.
    """

    def __init__(
        self,
        most: int,
        firsts: int = 0,
        quota: int = 0,
        *,
        resource: str = "",
        most_waiting: float = math.inf,
    ) -> None:
        """`quota`: that an owner is given at a time in any case; 0: no limit. `resource`: the name in
        metrics. `most_waiting`: beyond so many tasks `is_full`.
        """
        self._shares: FairShare[tuple[str, asyncio.Future[None]]] = FairShare(
            most, firsts, quota or math.inf, resource=resource, most_waiting=most_waiting
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
