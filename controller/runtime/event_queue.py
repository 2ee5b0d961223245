"""A bounded queue of Events, which are posted to a server one after the other without blocking the caller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.runtime.process.lasting import forever

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import Counter

    from controller.runtime.event import Event

log = logging.getLogger(__name__)

MOST_WAITING: Final = 5_000
"""Most waiting Events, of about 1 KiB; a first start with 1,000 sources and 1,000 flag sets makes fewer."""
_MOST_KNOWN: Final = 2 * MOST_WAITING
DRAIN: Final = 2.0
"""Seconds that a stop waits for unposted Events."""


class EventQueue(ABC):
    """An EventSink that posts Events in the block of `post_in_background`. A killed process loses the Events
    that wait.
    """

    def __init__(self, dropped: Counter, *, most: int = MOST_WAITING, drain: float = DRAIN) -> None:
        """`dropped` counts Events that were not posted because more than `most` were waiting. `drain`:
        seconds that a stop waits for unposted Events.
        """
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(most)
        self._drain = drain
        self._known: LRUCache[str, None] = LRUCache(_MOST_KNOWN)
        self._dropping = False
        self._dropped = dropped

    @abstractmethod
    async def post(self, event: Event) -> None:
        """Post until it is accepted or refused for good."""

    def accept(self, event: Event) -> None:
        """Queue the Event, unless its key was accepted before. The oldest is dropped from a full queue."""
        if event.key in self._known:
            return
        self._known[event.key] = None
        if self._waiting.full():
            self._waiting.get_nowait()
            self._waiting.task_done()
            self._dropped.inc()
            if not self._dropping:
                most = self._waiting.maxsize
                log.warning("more than %d Events wait to be posted; the oldest are dropped", most)
            self._dropping = True
        self._waiting.put_nowait(event)

    @contextlib.asynccontextmanager
    async def post_in_background(self) -> AsyncIterator[None]:
        """Post while the block runs, and then the waiting Events, for a bounded time."""
        task = asyncio.create_task(forever(self._post_next))
        try:
            yield
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain):
                    await self._waiting.join()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _post_next(self) -> None:
        event = await self._waiting.get()
        try:
            await self.post(event)
        finally:
            self._waiting.task_done()
        self._dropping = self._dropping and not self._waiting.empty()
