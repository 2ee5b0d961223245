"""Calls of a store's client: in this process, or in a helper process with a limit of memory."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.runtime.process.helper import TaskLimits
from controller.sources.deadline import Deadline, LimitedTasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from controller.sources.backend import TreeLimits
    from controller.sources.bucket.listing import Listed
    from controller.sources.bucket.place import Bucket

CLIENT: Final = "controller.sources.bucket.store_client"
TASK: Final = TaskLimits()
Call: TypeAlias = "Callable[..., Awaitable[Any]]"
"""(name of a function of the client, bucket, its other arguments) -> what it returns or raises."""


async def list_objects(call: Call, bucket: Bucket, limits: TreeLimits) -> list[Listed]:
    """List the bucket. Raises Setback, OSError."""
    entries: list[Listed] = await call("list_objects", bucket, limits)
    return entries


async def fetch_objects(call: Call, bucket: Bucket, objects: Sequence[Listed], into: Path) -> None:
    """Write these objects as files below `into`. Raises Setback, OSError."""
    await call("fetch_objects", bucket, objects, into)


async def call_here(name: str, bucket: Bucket, *arguments: object, seconds: float = 60.0) -> Any:
    """A `Call` in this process, of at most `seconds`: for a store that the user of a command named."""
    client = await asyncio.to_thread(import_module, CLIENT)
    async with Deadline(seconds, bucket.display_name).limit():
        return await getattr(client, name)(bucket, *arguments)


def in_helper(tasks: LimitedTasks) -> Call:
    """A `Call` in a helper process: obstore takes in whatever a store answers."""
    return partial(tasks.run, "reading the store's answers", run_now)


def run_now(name: str, *arguments: object) -> Any:
    """Call the client's function in a helper process. Raises Setback, OSError."""
    return asyncio.run(getattr(import_module(CLIENT), name)(*arguments))
