"""Work that must not end for the life of a process, whatever one turn of it comes to."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

PAUSE: Final = 1.0
"""Seconds after a turn that failed."""


async def forever(turn: Callable[[], Awaitable[None]]) -> None:
    """Take turn after turn until cancelled; one that raises is logged, and the next comes after a pause."""
    while True:
        try:
            await turn()
        except Exception:
            log.exception("an unexpected error; trying again in %g s", PAUSE)
            await asyncio.sleep(PAUSE)
