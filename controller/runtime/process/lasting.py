"""Repeats a coroutine for the life of the process: an error is logged, then it is tried again."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

PAUSE: Final = 1.0
"""Seconds of pause after a failed turn."""


async def forever(turn: Callable[[], Awaitable[None]], pause: float = PAUSE) -> None:
    """Repeat `turn` until cancelled; an exception is logged, and followed by a pause in
    seconds."""
    while True:
        try:
            await turn()
        except Exception:
            log.exception("an unexpected error; trying again in %g s", pause)
            await asyncio.sleep(pause)
