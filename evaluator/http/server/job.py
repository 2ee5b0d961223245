"""One deferred answer while it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from evaluator.http.deferred import Deferred

T = TypeVar("T")
Result: TypeAlias = Callable[[], T]
"""The answer; raises what making it raised."""


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
