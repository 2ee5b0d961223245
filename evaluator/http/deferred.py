"""Answers that take more than a moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from evaluator.http.messages import too_late

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")
R = TypeVar("R")
Result: TypeAlias = Callable[[], T]
"""The answer; raises what making it raised."""


@dataclass(frozen=True, slots=True)
class Deferred(Generic[T]):
    """An answer that takes milliseconds: it is made a few steps at a time, others being answered in between.

    If the client is gone before the end, `steps` is closed.
    """

    steps: Generator[None, None, T]
    """Yields after at most some hundred microseconds; returns the answer, or raises what a handler may raise.
    """
    seconds: float | None = None
    """How long the caller waits; DEADLINE_EXCEEDED then."""

    def through(self, run: Callable[[Generator[None, None, T]], Generator[None, None, R]]) -> Deferred[R]:
        """What `run` makes of the steps: it delegates to them, and sees an end even before their turn."""
        steps = run(_held(self.steps))
        next(steps)
        return Deferred(steps, self.seconds)

    def watched(self, well: Callable[[T], None], ill: Callable[[BaseException], None]) -> Deferred[T]:
        """The same answer, with one of the two called at its end; GeneratorExit: the client is gone."""

        def followed(steps: Generator[None, None, T]) -> Generator[None, None, T]:
            try:
                answer = yield from steps
            except BaseException as error:
                ill(error)
                raise
            well(answer)
            return answer

        return self.through(followed)

    def timed(self, clock: Callable[[], float]) -> Deferred[T]:
        """The same answer; once its `seconds`, from now on `clock`, have passed, the steps get the error."""
        if self.seconds is None:
            return self
        steps = self._timed(clock() + self.seconds, clock)
        # Begun, so that closing it closes what it times.
        next(steps)
        return Deferred(steps)

    def _timed(self, until: float, clock: Callable[[], float]) -> Generator[None, None, T]:
        try:
            yield
            while clock() < until:
                next(self.steps)
                yield
            self.steps.throw(too_late())
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            self.steps.close()
        raise too_late()


def _held(steps: Generator[None, None, T]) -> Generator[None, None, T]:
    """`steps` behind a first yield, at which they get what is thrown as if they had begun."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - theirs to raise
        try:
            steps.throw(error)
        except StopIteration as end:
            answer: T = end.value
            return answer
    return (yield from steps)


def at_once(steps: Generator[None, None, T]) -> T:
    """The answer of steps that are few."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer


class Job(Generic[T]):
    """One answer that is being made."""

    __slots__ = ("done", "steps")

    def __init__(self, deferred: Deferred[T], done: Callable[[Result[T]], None]) -> None:
        self.steps = deferred.steps
        self.done: Callable[[Result[T]], None] | None = done

    def cancel(self) -> None:
        """The result is not wanted any more: `done` is not called."""
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
            self._finish(lambda: answer)
        except Exception as error:  # noqa: BLE001 - the caller for the result gets it
            self._finish(_raising(error))
        else:
            return False
        return True

    def _finish(self, result: Result[T]) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(result)


def _raising(error: Exception) -> Result[Any]:
    def result() -> Any:
        raise error

    return result
