"""Limits of one reconcile of a source: its deadline, and helper processes for what strangers wrote."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from controller.runtime.helpers import HelperLostError, Helpers, LimitExceededError
from controller.runtime.setbacks import Failed, Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.runtime.helper import TaskLimits
    from controller.runtime.limits import Places


T = TypeVar("T")


@dataclass(slots=True)
class Deadline:
    """The time that the steps of one reconcile may take together. Waiting for a turn does not count."""

    seconds: float
    """Seconds for all steps together."""
    where: str
    """The source, as people are shown it."""
    left: float = field(init=False)
    """Seconds for the steps to come."""

    def __post_init__(self) -> None:
        self.left = self.seconds

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Cancel the block once the time is used up. Raises Failed (Timeout)."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self.left):
                yield
        except TimeoutError as error:
            message = f"{self.where}: no answer within {self.seconds:g} seconds"
            raise Failed("Timeout", message) from error
        finally:
            self.left = max(0.0, self.left - (clock() - began))


@dataclass(frozen=True, slots=True)
class ThreadTasks:
    """Runs tasks in threads of this process, without limits."""

    async def run(self, task: str, function: Callable[..., T], /, *arguments: Any) -> T:
        """Return what `function` returns."""
        del task
        return await asyncio.to_thread(function, *arguments)


@dataclass(frozen=True, slots=True)
class LimitedTasks:
    """Runs the tasks of one reconcile of one source in helper processes, within limits."""

    helpers: Helpers
    places: Places
    """Limits the helpers: one namespace is given half of them."""
    namespace: str
    deadline: Deadline
    limits: TaskLimits
    failure: str
    """The reason where a helper is lost."""

    async def run(self, task: str, function: Callable[..., T], /, *arguments: Any) -> T:
        """What `function` of a module returns; `task` names it in messages. Raises Stalled, Failed."""
        where = self.deadline.where
        try:
            async with self.places.place(self.namespace), self.deadline.limit():
                return await self.helpers.run(self.limits, function, *arguments)
        except LimitExceededError as error:
            allowed = self.limits.describe_limit(error.limit)
            message = f"{where}: {task} needs more {error.limit} than it may use ({allowed})"
            raise Stalled("LimitExceeded", message) from error
        except HelperLostError as error:
            raise Failed(self.failure, f"{where}: {task} failed: {error}") from error
