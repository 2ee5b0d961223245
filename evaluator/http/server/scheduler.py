"""Who takes a turn of the loop: those who asked for more than they are answered at once share a part of each
turn, one after another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_SECONDS: Final = 0.001
"""What is done for one connection as soon as it asks, and for all in the queue in one turn of the loop."""


class Task(Protocol):
    """Work that is done a little at a time."""

    def run(self, until: float) -> bool:
        """Take a step, and more while the stopwatch is before `until`; whether any are left."""


class FairQueue:
    """Tasks in turn. Who asks for little is not in it, and so does not wait for those who ask for much."""

    def __init__(self, budget: float = BUDGET_SECONDS, stopwatch: Callable[[], float] = perf_counter) -> None:
        """`budget`: seconds of each turn of the loop. `stopwatch`: seconds, of a higher resolution than the
        loop's.
        """
        self.stopwatch = stopwatch
        self._budget = budget
        self._tasks: deque[Task] = deque()
        self._running = False

    def deadline(self) -> float:
        """Until when something that begins now may go on, by the stopwatch."""
        return self.stopwatch() + self._budget

    def put(self, task: Task) -> None:
        """Have it take its turn behind those that are here; once at a time."""
        self._tasks.append(task)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        until, tasks = self.deadline(), self._tasks
        try:
            while tasks and self.stopwatch() < until:
                task = tasks.popleft()
                if task.run(until):
                    tasks.append(task)
        finally:
            # Also after a task that failed: it is the loop's to report, and the next one's turn.
            self._running = bool(tasks)
            if tasks:
                asyncio.get_running_loop().call_soon(self._run)
