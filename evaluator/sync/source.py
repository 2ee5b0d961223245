"""What a source of flags is to its follower."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from evaluator.flags.model import EMPTY
from evaluator.flags.syntax.text import Bounds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from evaluator.flags.model import Json
    from evaluator.wire.delivery import Ask

MAX_BYTES: Final = 64 * 1024 * 1024
"""What one source may deliver at once: looked at before it is read."""

BOUNDS: Final = Bounds(document_bytes=MAX_BYTES)
"""For what sources deliver, which programs write too."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """All that a source has now."""

    documents: tuple[tuple[str, bytes], ...]
    """Name, whose extension says the format, and content; several are read together as one layer."""
    context: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """Values that the source wants in every evaluation context."""


class Unchanged:
    """The source was asked, and has what it delivered last."""


UNCHANGED: Final = Unchanged()


RENEWAL: Final = "Renewal"
"""The reason of a peer that ended a stream for its age: nothing is wrong, and it is opened again."""


class SourceFault(Exception):
    """A source could not be read. `reason` is CamelCase and stable; `message` holds no secret."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


SourceEvent: TypeAlias = Delivery | Unchanged | SourceFault


class Companion(Protocol):
    """Talks with a source's peer on the connection of its stream."""

    async def run(self, ask: Ask) -> None:
        """Talk on a new connection, until cancelled or until there is nothing more to say."""

    async def leave(self, ask: Ask) -> None:
        """Say goodbye. Never raises, and takes a second at most."""

    def taken_within(self, seconds: float) -> bool:
        """Whether the peer answered so lately."""


class SyncSource(Protocol):
    """One place that flags come from."""

    @property
    def name(self) -> str:
        """For selectors, logs and metrics; holds no secret."""

    @property
    def identity(self) -> str:
        """Distinguishes its content from any other source's, from one start to the next."""

    def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """What the source says from now on, starting with what it has; the same content may come again. After
        a fault that is yielded more may follow; a SourceFault that is raised ends it, and the follower calls
        again after a pause that grows. Ends in no other way.
        """


class Changes:
    """The events of one source, compared from one call of `deliveries` to the next."""

    def __init__(self, source: SyncSource) -> None:
        self._source = source
        self._last: bytes | None = None

    async def events(self) -> AsyncGenerator[SourceEvent, None]:
        """As `SyncSource.deliveries`. The same content is Unchanged, whatever came in between."""
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
    """Equal for deliveries that say the same."""
    whole = hashlib.sha256(json.dumps(dict(delivery.context), sort_keys=True).encode())
    for name, content in delivery.documents:
        whole.update(f"\n{name}\n{len(content)}\n".encode(errors="surrogatepass"))
        whole.update(content)
    return whole.digest()
