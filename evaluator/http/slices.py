"""Answers that take more than a moment, made a slice at a time, so that others are answered in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from evaluator.http.routes import Deferred

T = TypeVar("T")
Result: TypeAlias = Callable[[], T]
"""The answer; raises what making it raised."""

SLICE_SECONDS: Final = 0.001
"""What one turn of the loop spends on all that is deferred on a port."""
MOST_DEFERRED: Final = 8
"""Deferred answers of one connection; its further requests wait, as those of a peer that does not read."""


class Job(Generic[T]):
    """One answer that is being made."""

    __slots__ = ("done", "steps")

    def __init__(self, deferred: Deferred[T], done: Callable[[Result[T]], None]) -> None:
        self.steps = deferred.steps
        self.done: Callable[[Result[T]], None] | None = done

    def cancel(self) -> None:
        """Nobody waits for it any more: `done` is not called."""
        if self.done is not None:
            self.done = None
            self.steps.close()

    def advance(self) -> bool:
        """Take a step; whether that was the last. Raises nothing of the answer's."""
        if self.done is None:
            return True
        try:
            next(self.steps)
        except StopIteration as end:
            answer: T = end.value
            self._tell(lambda: answer)
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            self._tell(_raising(error))
        else:
            return False
        return True

    def _tell(self, result: Result[T]) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(result)


def _raising(error: Exception) -> Result[Any]:
    def result() -> Any:
        raise error

    return result


class Slices:
    """The deferred answers of one port, first come, first served: the fewest are half made at any moment."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """`clock`: seconds, of a high resolution."""
        self._clock = clock
        self._jobs: deque[Job[Any]] = deque()
        self._running = False

    def start(self, deferred: Deferred[T], done: Callable[[Result[T]], None]) -> Job[T]:
        """Make it from the loop's next turn on, then call `done`."""
        job = Job(deferred, done)
        self._jobs.append(job)
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)
        return job

    def _run(self) -> None:
        until = self._clock() + SLICE_SECONDS
        jobs = self._jobs
        try:
            while jobs and self._clock() < until:
                if jobs[0].advance():
                    jobs.popleft()
        finally:
            # Also after a response that could not be written: it is the loop's to report, and the next one's turn.
            self._running = bool(jobs)
            if jobs:
                asyncio.get_running_loop().call_soon(self._run)
