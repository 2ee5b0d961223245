"""A document that is polled: by HTTP, or in an object store."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from evaluator.sync.schedule import Schedule
    from evaluator.sync.source import SourceEvent


class PolledSource(ABC):
    """Asks for the document at each time of a schedule. Implements `SyncSource`."""

    def __init__(self, name: str, identity: str, schedule: Schedule, clock: Callable[[], float]) -> None:
        """clock: Unix seconds."""
        self.name = name
        self.identity = identity
        self.clock = clock
        self.etag: str | None = None
        """The last answer's, if it was a document."""
        self.asked_to_wait = 0.0
        """Seconds that the last answer asked to wait."""
        self._schedule = schedule

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield the document at each poll; raise SourceFault if it cannot be read."""
        await self.open()
        try:
            while True:
                yield await self.ask()
                await asyncio.sleep(max(self._schedule.pause(self.clock()), self.asked_to_wait))
        finally:
            self.close()

    @abstractmethod
    async def ask(self) -> SourceEvent:
        """Return the document, or that it is unchanged. Raises SourceFault."""

    async def open(self) -> None:  # noqa: B027 - nothing to do for most
        """Prepare to ask. Raises SourceFault."""

    def close(self) -> None:  # noqa: B027
        """Abort what is under way."""
