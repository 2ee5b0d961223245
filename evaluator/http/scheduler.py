"""Round-robin scheduler: long tasks share one time budget in each iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol, TypeAlias

BUDGET_SECONDS: Final = 0.001
"""Most seconds spent at once on a new task, and on all queued tasks in one iteration of the loop."""


Turn: TypeAlias = Callable[[float], bool]
"""Does a step of its work, and more until the stopwatch reaches the argument; returns whether any is left."""


class Scheduler(Protocol):
    """The part of an event loop that is needed here."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call `callback` after whatever else is due now."""


class FairQueue:
    """Runs long tasks a slice at a time, round robin. Short tasks are answered at once and never queued."""

    def __init__(
        self,
        budget: float = BUDGET_SECONDS,
        stopwatch: Callable[[], float] = perf_counter,
        loop: Scheduler | None = None,
    ) -> None:
        """Take the seconds of a turn, a precise clock in seconds, and an event loop (None: the running)."""
        self.stopwatch = stopwatch
        self._budget = budget
        self._loop = loop
        self._waiting: deque[Turn] = deque()
        self._running = False

    def deadline(self) -> float:
        """Return when a turn that begins now ends, by the stopwatch."""
        return self.stopwatch() + self._budget

    def put(self, turn: Turn) -> None:
        """Append a task to the queue; it must not be in the queue."""
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
            # The loop logs an exception of a task; the next task continues.
            self._running = bool(waiting)
            if waiting:
                self._call_soon()

    def _call_soon(self) -> None:
        (self._loop or asyncio.get_running_loop()).call_soon(self._run)
