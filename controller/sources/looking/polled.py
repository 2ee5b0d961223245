"""What a source has in common in local mode that reports no changes and keeps nothing between two looks."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.sources.provider import LineAuthor, Revision

_random = secrets.SystemRandom()


async def polled(interval: float) -> AsyncIterator[None]:
    """At once, then every `interval` seconds, a tenth more or less: many do not ask at once."""
    while True:
        yield
        await asyncio.sleep(interval * _random.uniform(0.9, 1.1))


class PolledProvider:
    """Implements a part of `LocalProvider`."""

    __slots__ = ()

    interval: float
    """Seconds between two looks in local mode."""

    def kept_in(self, folder: Path) -> Self:
        """The same: nothing is kept."""
        del folder
        return self

    def whole(self) -> Self:
        """The same: all of it is fetched."""
        return self

    def changes(self) -> AsyncIterator[None]:
        """At once, then every interval."""
        return polled(self.interval)

    async def last_change(self, revision: Revision, file: str, line: int) -> LineAuthor | None:
        """None: it does not say."""
        del revision, file, line
        return None
