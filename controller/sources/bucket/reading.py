"""Readers of a store: this process, or a helper of its own with a limit of memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.runtime.process.helper import TaskLimits
from controller.sources.looking.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controller.sources.bucket.listing import Listed
    from controller.sources.bucket.place import Bucket
    from controller.sources.looking.deadline import LimitedTasks
    from controller.sources.provider import TreeLimits

CLIENT: Final = "controller.sources.bucket.client"
TASK: Final = TaskLimits()


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
        found: list[Listed] = await self._run("list_objects", bucket, limits)
        return found

    async def fetch(self, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
        """Implements `Reader`."""
        await self._run("fetch_objects", bucket, objects, into)

    async def _run(self, name: str, bucket: Bucket, *arguments: object) -> Any:
        client = await asyncio.to_thread(import_module, CLIENT)
        async with Deadline(self.timeout, bucket.shown).running():
            return await getattr(client, name)(bucket, *arguments)


@dataclass(frozen=True, slots=True)
class LimitedReader:
    """Reads in a helper process: obstore takes in whatever a store answers."""

    tasks: LimitedTasks

    async def list(self, bucket: Bucket, limits: TreeLimits) -> list[Listed]:
        """Implements `Reader`."""
        found: list[Listed] = await self._run("list_objects", bucket, limits)
        return found

    async def fetch(self, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
        """Implements `Reader`."""
        await self._run("fetch_objects", bucket, objects, into)

    async def _run(self, *called: object) -> Any:
        return await self.tasks.run("reading the store's answers", run_now, *called)


def run_now(name: str, *arguments: object) -> Any:
    """What a helper runs. Raises Setback, OSError."""
    return asyncio.run(getattr(import_module(CLIENT), name)(*arguments))
