"""Waits for state of the code under test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def until(true: Callable[[], object], *, seconds: float = 60.0, poll: float = 0.001) -> None:
    """Poll until `true` returns something true. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for is state of the code under test
            await asyncio.sleep(poll)
