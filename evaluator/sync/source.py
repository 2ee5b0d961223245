"""The interface between a source of flags and its follower, and a document that is polled."""

from __future__ import annotations

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from evaluator.flags.model import EMPTY, Json
from evaluator.flags.text import Bounds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from evaluator.sync.schedule import Schedule
    from evaluator.wire.delivery import Ask


MAX_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of one delivery, checked before it is parsed."""

BOUNDS: Final = Bounds(document_bytes=MAX_BYTES)
"""Bounds of deliveries, which programs write, too."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The whole content of a source."""

    documents: tuple[tuple[str, bytes], ...]
    """(name with the format's extension, content); several documents are read together as one layer."""
    context: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Values that the source wants in every evaluation context."""


class Unchanged:
    """The source was read, and its content is that of its last delivery."""


UNCHANGED: Final = Unchanged()


RENEWAL: Final = "Renewal"
"""Reason of a stream that the peer ended for its age: no fault, the stream is opened again."""


class SourceFault(Exception):
    """A source could not be read. `reason` is CamelCase and stable; `message` holds no secret."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


SourceEvent: TypeAlias = Delivery | Unchanged | SourceFault


class Companion(Protocol):
    """Calls other services of a source's peer on the connection of its stream."""

    async def run(self, ask: Ask) -> None:
        """Call the peer on a new connection, until cancelled or finished."""

    async def leave(self, ask: Ask) -> None:
        """Send a goodbye. Never raises; takes at most a second."""

    def was_taken_within(self, seconds: float) -> bool:
        """Return whether the peer answered within the last `seconds`."""


class SyncSource(Protocol):
    """One source of flags."""

    @property
    def name(self) -> str:
        """Name for selectors, logs and metrics; holds no secret."""

    @property
    def identity(self) -> str:
        """Identity of its content, different from any other source's and the same at each start."""

    def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield the source's events, starting with its present content; the same content may come again.
        After a yielded fault more events may follow; a raised SourceFault ends the iteration, and the
        follower calls again after a pause that grows. Ends in no other way.
        """


class SourceEvents:
    """Events of one source, deduplicated across calls of `deliveries`."""

    def __init__(self, source: SyncSource) -> None:
        self._source = source
        self._last: bytes | None = None

    async def events(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield the events of `SyncSource.deliveries`; repeated content as Unchanged, even after faults."""
        async with aclosing(self._source.deliveries()) as deliveries:
            async for event in deliveries:
                if isinstance(event, Delivery):
                    content = await asyncio.to_thread(fingerprint, event)
                    if content == self._last:
                        yield UNCHANGED
                        continue
                    self._last = content
                yield event


def fingerprint(delivery: Delivery) -> bytes:
    """Return a fingerprint that is equal for deliveries of equal content."""
    whole = hashlib.sha256(json.dumps(dict(delivery.context), sort_keys=True).encode())
    for name, content in delivery.documents:
        whole.update(f"\n{name}\n{len(content)}\n".encode(errors="surrogatepass"))
        whole.update(content)
    return whole.digest()


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
