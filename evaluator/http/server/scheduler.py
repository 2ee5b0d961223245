"""Who takes a turn of the loop: long tasks share a part of each turn, one after another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol, TypeAlias

BUDGET_SECONDS: Final = 0.001
"""What is done for one task as soon as it asks, and for all in the queue in one turn of the loop."""


Turn: TypeAlias = Callable[[float], bool]
"""Takes a step of its work, and more until the stopwatch reaches the argument; whether any is left."""


class Scheduler(Protocol):
    """The part of an event loop that is needed here."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call `callback` after whatever else is due now."""


class FairQueue:
    """Work in turn. Who asks for little is not in it, and so does not wait for those who ask for much."""

    def __init__(
        self,
        budget: float = BUDGET_SECONDS,
        stopwatch: Callable[[], float] = perf_counter,
        loop: Scheduler | None = None,
    ) -> None:
        """`budget`: seconds of a turn. `stopwatch`: precise seconds. `loop`: None for the running one."""
        self.stopwatch = stopwatch
        self._budget = budget
        self._loop = loop
        self._waiting: deque[Turn] = deque()
        self._running = False

    def deadline(self) -> float:
        """Until when something that begins now may go on, by the stopwatch."""
        return self.stopwatch() + self._budget

    def put(self, turn: Turn) -> None:
        """Have it take its turn behind those that are here; once at a time."""
        self._waiting.append(turn)
        if not self._running:
            self._running = True
            self._call_soon()

    def _run(self) -> None:
        until, waiting = self.deadline(), self._waiting
        try:
            while waiting and self.stopwatch() < until:
                turn = waiting.popleft()
                if turn(until):
                    waiting.append(turn)
        finally:
            # Also after a failure: that is the loop's to report, and then it is the next one's turn.
            self._running = bool(waiting)
            if waiting:
                self._call_soon()

    def _call_soon(self) -> None:
        (self._loop or asyncio.get_running_loop()).call_soon(self._run)
