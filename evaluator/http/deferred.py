"""Responses that take several milliseconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from evaluator.http.messages import deadline_exceeded

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")
R = TypeVar("R")
Result: TypeAlias = Callable[[], T]
"""Returns the answer, or raises the error of making it."""
Wait: TypeAlias = Callable[[Callable[[], None]], object]
"""Takes a function, and has it called on the event loop once the wait is over."""


def result_raising(error: BaseException) -> Result[Any]:
    """Return a Result that raises the error."""

    def result() -> Any:
        raise error

    return result


def _call(result: Result[Any]) -> Any:
    return result()


@dataclass(frozen=True, slots=True)
class Deferred(Generic[T]):
    """An answer that takes milliseconds: made in steps, so that others are answered in between."""

    steps: Generator[Wait | None, None, Any]
    """Does the work; yields every few hundred microseconds; is closed if the caller stops waiting. A Wait
    that it yields, such as for a thread, is over before the next step.
    """
    finish: Callable[[Result[Any]], T] = _call
    """Makes the answer from the result of `steps`, or raises what a handler may raise. The result raises
    DEADLINE_EXCEEDED if the caller's deadline has passed, GeneratorExit if the client has disconnected.
    """
    seconds: float | None = None
    """Seconds that the caller waits."""

    def then(self, finish: Callable[[Result[T]], R]) -> Deferred[R]:
        """Apply a function to the answer of `finish`."""
        before = self.finish
        return Deferred(self.steps, lambda result: finish(partial(before, result)), self.seconds)

    def watch(self, succeeded: Callable[[T], None], failed: Callable[[BaseException], None]) -> Deferred[T]:
        """Return the same answer, which at its end calls `succeeded` or `failed`."""

        def report(result: Result[T]) -> T:
            try:
                answer = result()
            except BaseException as error:
                failed(error)
                raise
            succeeded(answer)
            return answer

        return self.then(report)


def at_once(steps: Generator[Wait | None, None, T]) -> T:
    """Run all steps without a pause and return their result; none of them may be a Wait."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer


class Job(Generic[T]):
    """A deferred answer in progress."""

    __slots__ = ("_answer", "_clock", "_done", "_until", "wait")

    def __init__(
        self, answer: Deferred[T], clock: Callable[[], float], done: Callable[[Result[T]], None]
    ) -> None:
        """Take a clock in seconds, and a function to call with the result."""
        self._answer = answer
        self._clock = clock
        self._until = inf if answer.seconds is None else clock() + answer.seconds
        self._done: Callable[[Result[T]], None] | None = done
        self.wait: Wait | None = None
        """The wait before the next step; None: there is none."""

    def cancel(self) -> None:
        """Stop: the client disconnected and `done` is not called."""
        if self._done is not None:
            self._done = None
            self._answer.steps.close()
            with suppress(GeneratorExit):
                self._answer.finish(result_raising(GeneratorExit()))

    def advance(self) -> bool:
        """Take a step; return whether that was the last. Never raises the answer's errors."""
        if self._done is None:
            return True
        steps = self._answer.steps
        result: Result[Any]
        try:
            if self._clock() < self._until:
                self.wait = next(steps)
                return False
            steps.close()
            result = result_raising(deadline_exceeded())
        except StopIteration as end:
            result = partial(getattr, end, "value")
        except Exception as error:  # noqa: BLE001 - who calls for the result gets it
            result = result_raising(error)
        done, self._done = self._done, None
        done(partial(self._answer.finish, result))
        return True


class Jobs:
    """The deferred answers of one connection: those to continue, in order, and those that wait."""

    __slots__ = ("_waiting", "due")

    def __init__(self) -> None:
        self._waiting: tuple[Job[Any], ...] = ()
        self.due: deque[Job[Any]] = deque()

    def add(self, job: Job[Any]) -> None:
        """Begin or continue an answer."""
        self._waiting = tuple(other for other in self._waiting if other is not job)
        self.due.append(job)

    def advance(
        self, until: float, stopwatch: Callable[[], float], resume: Callable[[Job[Any]], None]
    ) -> None:
        """Make steps until the stopwatch reaches `until`; `resume` is called with a job that has waited."""
        due = self.due
        while due:
            job = due[0]
            if job.advance():
                due.popleft()
            elif job.wait is not None:
                self._waiting = (*self._waiting, due.popleft())
                job.wait(partial(resume, job))
            if stopwatch() >= until:
                break

    def cancel(self) -> None:
        """Cancel all answers: the connection is closed."""
        for job in (*self.due, *self._waiting):
            job.cancel()
