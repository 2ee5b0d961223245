"""Work on what strangers wrote, in a helper process that has limits of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from controller.runtime.process.helpers import HelperLostError, LimitExceededError
from controller.runtime.reconciling.setbacks import Failed, Stalled

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.runtime.process.helper import TaskLimits
    from controller.runtime.process.helpers import Helpers
    from controller.runtime.tenancy.places import Places
    from controller.sources.looking.deadline import Deadline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LimitedTasks:
    """The tasks of one look at one source."""

    helpers: Helpers
    places: Places
    """Of the helpers: one namespace is given half."""
    namespace: str
    deadline: Deadline
    limits: TaskLimits
    failure: str
    """The reason where a helper is lost."""

    async def run(self, what: str, function: Callable[..., T], /, *arguments: Any) -> T:
        """What `function` of a module returns or raises; `what` says for messages what it does.

        Raises Stalled (LimitExceeded) for what needs too much, Failed.
        """
        where = self.deadline.where
        try:
            async with self.places.place(self.namespace), self.deadline.running():
                return await self.helpers.run(self.limits, function, *arguments)
        except LimitExceededError as error:
            allowed = self.limits.allowed(error.limit)
            message = f"{where}: {what} needs more {error.limit} than it may use ({allowed})"
            raise Stalled("LimitExceeded", message) from error
        except HelperLostError as error:
            raise Failed(self.failure, f"{where}: {what} failed: {error}") from error
