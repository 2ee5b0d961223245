"""Connections that asked for more than they are answered at once: they share a part of each turn of the loop, one after another."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_SECONDS: Final = 0.001
"""What a connection is answered at once; and what all that wait on a port are answered in one turn of the loop."""


class Waits(Protocol):
    """A connection with requests that are not answered yet."""

    def take_turn(self) -> None:
        """Answer them, for a turn at most; whoever has more left comes back behind the others."""


class Backlog:
    """Of one port. Who asks for little is not in it, and so does not wait for those who ask for much."""

    def __init__(self, stopwatch: Callable[[], float] = perf_counter) -> None:
        """`stopwatch`: seconds, of a higher resolution than the loop's."""
        self.stopwatch = stopwatch
        self._waiting: deque[Waits] = deque()
        self._running = False

    def put(self, connection: Waits) -> None:
        """Have it take its turn behind those who are here; once at a time."""
        self._waiting.append(connection)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until = self.stopwatch() + TURN_SECONDS
        try:
            while self._waiting and self.stopwatch() < until:
                self._waiting.popleft().take_turn()
        finally:
            # Also after one that could not be written to: it is the loop's to report, and the next one's turn.
            self._running = bool(self._waiting)
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._run)
