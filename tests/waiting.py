"""Runs what ends only when it is cancelled, and waits for state of the code under test."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


async def until(true: Callable[[], object], *, seconds: float = 60.0, poll: float = 0.001) -> None:
    """Poll until `true` returns something true. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for is state of the code under test
            await asyncio.sleep(poll)


@contextlib.asynccontextmanager
async def run_beside(work: Awaitable[object]) -> AsyncIterator[asyncio.Future[object]]:
    """Run `work` beside the block, and cancel it at its end."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_until(work: Awaitable[object], true: Callable[[], object]) -> None:
    """Run `work` until `true` returns something true."""
    async with run_beside(work):
        await asyncio.sleep(0)
        await until(true)
