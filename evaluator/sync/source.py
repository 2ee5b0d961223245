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


UNVERIFIED: Final = "Unverified"
"""Reason of the fault of a content whose signature is missing, or is not believed."""
SUFFIX: Final = ".sig"
"""What the name of a signature's file has behind the whole name of the content's."""
SIGNATURE_BYTES: Final = 65_536
"""Most bytes of a signature."""


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


class ContentVerifier(Protocol):
    """Judges contents by the signatures beside them."""

    def require(self, name: str, content: bytes, signature: bytes) -> None:
        """Raise SourceFault, UNVERIFIED, unless the signature of the content is believed. Blocks."""


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
        self.verifier: ContentVerifier | None = None
        """Judges each document by the signature beside it; None: everything is believed."""
        self._schedule = schedule

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield the document at each poll; raise SourceFault if it cannot be read."""
        await self.open()
        try:
            while True:
                yield await (self.ask() if self.verifier is None else self._ask_verified(self.verifier))
                await asyncio.sleep(max(self._schedule.pause(self.clock()), self.asked_to_wait))
        finally:
            self.close()

    async def _ask_verified(self, verifier: ContentVerifier) -> SourceEvent:
        """Return a document that is verified, or the fault that it is not. Raises other SourceFaults."""
        event = await self.ask()
        if not isinstance(event, Delivery):
            return event
        # What is not verified is asked for again at the next poll.
        etag, self.etag = self.etag, None
        if await self._refusal(verifier, event) is not None:
            # The document and its signature may be of two versions, one of which was replaced in between.
            event = await self.ask()
            etag, self.etag = self.etag, None
            if isinstance(event, Delivery) and (refused := await self._refusal(verifier, event)) is not None:
                return refused
        self.etag = etag
        return event

    async def _refusal(self, verifier: ContentVerifier, delivery: Delivery) -> SourceFault | None:
        signature = await self.ask_signature()
        for name, content in delivery.documents:
            try:
                await asyncio.to_thread(verifier.require, name, content, signature)
            except SourceFault as fault:
                return fault
        return None

    @abstractmethod
    async def ask(self) -> SourceEvent:
        """Return the document, or that it is unchanged. Raises SourceFault."""

    @abstractmethod
    async def ask_signature(self) -> bytes:
        """Return the signature beside the document; empty: there is none. Raises SourceFault."""

    async def open(self) -> None:  # noqa: B027 - nothing to do for most
        """Prepare to ask. Raises SourceFault."""

    def close(self) -> None:  # noqa: B027
        """Abort what is under way."""
