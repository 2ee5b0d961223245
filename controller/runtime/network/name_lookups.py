"""Looks up the addresses of names that users give, in threads of its own.

The event loop's way has few threads, for two look-ups at a time: a name server that never answers, of one
namespace, would hold up every other name and whatever else is done in threads.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

AT_ONCE: Final = 64
_THREADS: Final = ThreadPoolExecutor(AT_ONCE, "names")


async def look_up(
    host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC, flags: int = 0
) -> list[tuple[Any, Any, int, str, tuple[Any, ...]]]:
    """As socket.getaddrinfo has it, for streams. Raises OSError."""
    asked = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=flags)
    return list(await asyncio.get_running_loop().run_in_executor(_THREADS, asked))
