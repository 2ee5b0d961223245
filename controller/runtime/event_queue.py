"""A bounded queue of Events, which are posted to a server in turn for each namespace, without blocking the
caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.runtime.process import forever
from evaluator.host.shares import FairShare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import Counter

    from controller.runtime.event import Event

log = logging.getLogger(__name__)

MOST_WAITING: Final = 5_000
"""Most waiting Events, of about 1 KiB; a first start with 1,000 sources and 1,000 flag sets makes fewer."""
_MOST_KNOWN: Final = 2 * MOST_WAITING
_AT_ONCE: Final = 4
"""Events that are posted at a time, each of another namespace; beyond them there are as many for namespaces
that have none.
"""
DRAIN: Final = 2.0
"""Seconds that a stop waits for unposted Events."""


class EventQueue(ABC):
    """An EventSink that posts Events in the block of `post_in_background`: of each namespace one after the
    other, and of several namespaces at a time. A killed process loses the Events that wait.
    """

    def __init__(
        self, dropped: Counter, *, resource: str, most: int = MOST_WAITING, drain: float = DRAIN
    ) -> None:
        """`dropped` counts Events that were not posted because more than `most` were waiting. `resource`: the
        name in metrics. `drain`: seconds that a stop waits for unposted Events.
        """
        self._turns: FairShare[str] = FairShare(_AT_ONCE, _AT_ONCE, 1, resource=resource)
        """Keys of Events."""
        self._events: dict[str, Event] = {}
        self._most = most
        self._drain = drain
        self._known: LRUCache[str, None] = LRUCache(_MOST_KNOWN)
        self._dropping = False
        self._dropped = dropped
        self._changed = asyncio.Event()

    @abstractmethod
    async def post(self, event: Event) -> None:
        """Post until it is accepted or refused for good."""

    def accept(self, event: Event) -> None:
        """Queue the Event, unless its key was accepted before. From a full queue the oldest is dropped of the
        namespace that has most.
        """
        if event.key in self._known:
            return
        self._known[event.key] = None
        if self._turns.waiting >= self._most:
            del self._events[self._turns.drop()]
            self._dropped.inc()
            if not self._dropping:
                log.warning("more than %d Events wait to be posted; the oldest are dropped", self._most)
            self._dropping = True
        self._events[event.key] = event
        self._turns.add(event.object.namespace, event.key)
        self._changed.set()

    @contextlib.asynccontextmanager
    async def post_in_background(self) -> AsyncIterator[None]:
        """Post while the block runs, and then the waiting Events, for a bounded time."""
        task = asyncio.create_task(forever(self._post_all))
        try:
            yield
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain):
                    while self._events:
                        self._changed.clear()
                        await self._changed.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _post_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                while (key := self._turns.take()) is not None:
                    group.create_task(self._post_next(key))
                self._changed.clear()
                await self._changed.wait()

    async def _post_next(self, key: str) -> None:
        event = self._events[key]
        try:
            await self.post(event)
        except Exception:
            log.exception("an Event was not posted")
        finally:
            del self._events[key]
            self._turns.release(event.object.namespace)
            self._dropping = self._dropping and self._turns.waiting > 0
            self._changed.set()
