"""When to look again at a source that reports no changes."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_random = secrets.SystemRandom()


async def polled(interval: float) -> AsyncIterator[None]:
    """At once, then every `interval` seconds, up to a tenth sooner or later, so that many do not
    ask in step.
    """
    while True:
        yield
        await asyncio.sleep(interval * _random.uniform(0.9, 1.1))
