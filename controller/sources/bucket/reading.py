"""Readers of a store: this process, or a helper of its own with a limit of memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from controller.runtime.process.helper import TaskLimits
from controller.runtime.process.helpers import HelperLostError, LimitExceededError
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.looking.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from controller.runtime.process.helpers import Helpers
    from controller.runtime.tenancy.places import Places
    from controller.sources.bucket.listing import Listed
    from controller.sources.bucket.place import Bucket
    from controller.sources.limits import TreeLimits

T = TypeVar("T")

CLIENT: Final = "controller.sources.bucket.client"
_TASK: Final = TaskLimits()


class Reader(Protocol):
    """Lists and fetches, as `controller.sources.bucket.client`."""

    async def list(self, bucket: Bucket, limits: TreeLimits) -> list[Listed]:
        """Everything that has the prefix. Raises Setback."""

    async def fetch(self, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
        """Write `objects` below `into`. Raises Setback, OSError."""


@dataclass(frozen=True, slots=True)
class OwnReader:
    """Reads in this process: for a store that the user of a command named."""

    timeout: float = 60.0
    """Seconds for each step."""

    async def list(self, bucket: Bucket, limits: TreeLimits) -> list[Listed]:
        """Implements `Reader`."""
        client = await asyncio.to_thread(import_module, CLIENT)
        async with Deadline(self.timeout, bucket.shown).running():
            found: list[Listed] = await client.list_objects(bucket, limits)
        return found

    async def fetch(self, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
        """Implements `Reader`."""
        client = await asyncio.to_thread(import_module, CLIENT)
        async with Deadline(self.timeout, bucket.shown).running():
            await client.fetch_objects(bucket, objects, into)


@dataclass(frozen=True, slots=True)
class LimitedReader:
    """Reads in a helper process, for one look at one source: obstore takes in whatever a store answers."""

    helpers: Helpers
    places: Places
    """Of the helpers: one namespace is given half."""
    namespace: str
    deadline: Deadline
    task: TaskLimits = _TASK

    async def list(self, bucket: Bucket, limits: TreeLimits) -> list[Listed]:
        """Implements `Reader`."""
        return await self._run(list_now, bucket, limits)

    async def fetch(self, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
        """Implements `Reader`."""
        await self._run(fetch_now, bucket, objects, into)

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        where = self.deadline.where
        try:
            async with self.places.place(self.namespace), self.deadline.running():
                return await self.helpers.run(self.task, function, *arguments)
        except LimitExceededError as error:
            message = f"{where}: reading the store's answers needs more {error.limit} than it may use"
            raise Stalled("LimitExceeded", message) from error
        except HelperLostError as error:
            raise Failed("BucketOperationFailed", f"{where}: it could not be read: {error}") from error


def list_now(bucket: Bucket, limits: TreeLimits) -> list[Listed]:
    """What a helper runs. Raises Setback."""
    found: list[Listed] = asyncio.run(import_module(CLIENT).list_objects(bucket, limits))
    return found


def fetch_now(bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
    """What a helper runs. Raises Setback, OSError."""
    asyncio.run(import_module(CLIENT).fetch_objects(bucket, objects, into))
