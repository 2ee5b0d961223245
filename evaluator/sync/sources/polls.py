"""What a source that is asked again and again keeps from one answer to the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evaluator.sync.accept import fingerprint
from evaluator.sync.source import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.sync.schedule import Schedule
    from evaluator.sync.source import Delivery, SourceEvent


class Polls:
    """When to ask next, and what was delivered last, by ETag for the peer and by content for us."""

    def __init__(self, schedule: Schedule, clock: Callable[[], float]) -> None:
        """`clock` is Unix seconds."""
        self._schedule = schedule
        self.clock = clock
        self.etag: str | None = None
        """Of the newest answer that had content, as the peer wrote it."""
        self._delivered: bytes | None = None

    @property
    def delivered(self) -> bool:
        """Whether there was an answer with content."""
        return self._delivered is not None

    async def answered(self, delivery: Delivery, etag: str | None) -> SourceEvent:
        """`delivery`, or Unchanged where its content is the last one's."""
        content = await asyncio.to_thread(fingerprint, delivery)
        self.etag = etag
        if content == self._delivered:
            return UNCHANGED
        self._delivered = content
        return delivery

    async def pause(self, at_least: float = 0.0) -> None:
        """Wait until it is time to ask again; `at_least` seconds, where the peer wants them."""
        await asyncio.sleep(max(self._schedule.pause(self.clock()), at_least))
