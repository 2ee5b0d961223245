"""The parts of a process, and its end by a signal: the first one stops its work, and a second one ends it at
once.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def stop_at_signals() -> asyncio.Event:
    """Return what SIGTERM or SIGINT sets from now on. Called on the loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    return stop


def end_at_signals() -> None:
    """Have the next signal end the process at once, without a traceback. Called on the loop."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


async def run_together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run the parts until the first one ends, and cancel the others. Raises what that one raises."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def work_until(
    stop: asyncio.Event, work: Coroutine[Any, Any, None], drain: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Work until `stop`; then `drain` while the work goes on, and cancel it. Raises what the work raises."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    end_at_signals()
    stopping.cancel()
    if drain is not None:
        await drain()
    working.cancel()
    await asyncio.gather(working, stopping, return_exceptions=True)
    if not working.cancelled():
        working.result()
