"""The one deadline of a look at a source."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class Deadline:
    """The time that the steps of one look may take together. Waiting for a turn does not count."""

    seconds: float
    """For all steps."""
    where: str
    """The source, as people are shown it."""
    left: float = field(init=False)
    """Seconds for the steps to come."""

    def __post_init__(self) -> None:
        self.left = self.seconds

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
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
