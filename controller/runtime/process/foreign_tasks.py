"""Reads what others wrote: little of it in a thread, more in a helper process with limits of CPU and memory.

Bytes that are few to store may be many to read, and some calls of the interpreter end only with their input,
so that a thread of this process would hold all others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from controller.runtime.process.helper import TaskLimits
from controller.runtime.process.helpers import HelperLostError, LimitExceededError, pack
from controller.runtime.reconciling.setbacks import Failed, Stalled

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.runtime.process.helpers import Helpers
    from controller.runtime.tenancy.places import Places

T = TypeVar("T")

HELPERS: Final = 2
SMALL: Final = 64 * 1024
"""Most bytes that are read in a thread: whatever is in them takes some tenths of a second."""
_LIMITS: Final = TaskLimits(cpu_seconds=30.0)
_SECONDS: Final = 120.0
"""By the clock: a machine under load may need that long for the CPU time."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is done, for whom, as messages say it."""

    namespace: str
    name: str
    """Such as `building main@sha1:abc`."""
    remedy: str
    """What to do where it takes too much."""


class ForeignTasks(Protocol):
    """Runs functions of modules on what others wrote."""

    async def run(self, task: Task, function: Callable[..., T], /, *arguments: Any, large: bool = False) -> T:
        """Return or raise what the function does. `large`: its arguments are more than they take to store.
        Raises Stalled (LimitExceeded), Failed.
        """


@dataclass(frozen=True, slots=True)
class ThreadedTasks:
    """Runs all in threads of this process: of definitions that are trusted, which may take any time."""

    async def run(self, task: Task, function: Callable[..., T], /, *arguments: Any, large: bool = False) -> T:
        """See ForeignTasks."""
        del task, large
        return await asyncio.to_thread(function, *arguments)


TRUSTED: Final = ThreadedTasks()


@dataclass(frozen=True, slots=True)
class HelperTasks:
    """Runs what is large in helpers."""

    helpers: Helpers
    places: Places
    """Limits the helpers: one namespace is given half of them."""
    limits: TaskLimits = _LIMITS
    small: int = SMALL
    seconds: float = _SECONDS
    """The deadline of a task, from the time when it has a helper."""

    async def run(self, task: Task, function: Callable[..., T], /, *arguments: Any, large: bool = False) -> T:
        """See ForeignTasks."""
        request = await asyncio.to_thread(pack, self.limits, function, *arguments)
        if not large and len(request) <= self.small:
            return await asyncio.to_thread(function, *arguments)
        try:
            async with self.places.place(task.namespace), asyncio.timeout(self.seconds):
                return await self.helpers.send(request)  # type: ignore[no-any-return]  # by the function
        except TimeoutError:
            message = f"{task.name} took longer than {self.seconds:g} seconds; {task.remedy}"
            raise Failed("ReadTimedOut", message) from None
        except LimitExceededError as error:
            allowed = self.limits.describe_limit(error.limit)
            message = f"{task.name} needs more {error.limit} than it may use ({allowed}); {task.remedy}"
            raise Stalled("LimitExceeded", message) from error
        except HelperLostError as error:
            raise Failed("ReadFailed", f"{task.name} failed: {error}") from error
