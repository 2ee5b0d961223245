"""The files of `flagstaff up --rollout`, which are read again when they change."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from controller.runtime.clock import now
from controller.runtime.reconciling.setbacks import Stalled
from evaluator.sync.source import UNCHANGED
from evaluator.sync.sources.file import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class Rollouts(Protocol):
    """What the files are applied to."""

    def replace(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Apply what the files say now. Raises Stalled for manifests that cannot be used."""

    def refuse(self, message: str) -> None:
        """Report why what the files say now is not applied."""


@dataclass(frozen=True, slots=True)
class RolloutFiles:
    """Where the manifests stand, and how they are read."""

    paths: tuple[Path, ...]
    """Regular files and folders: what can be read again."""
    read: Callable[[], Sequence[dict[str, Any]]]
    """Return the manifests of all files. Raises Stalled for what a cluster would refuse. Blocks."""

    async def follow(self, rollouts: Rollouts) -> None:
        """Apply the files whenever one of them changes. Never ends."""
        lock = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            for path in self.paths:
                group.create_task(self._follow(path, rollouts, lock))

    async def _follow(self, path: Path, rollouts: Rollouts, lock: asyncio.Lock) -> None:
        source = FileSource(str(path), str(path), path, lambda: now().timestamp())
        async with aclosing(source.deliveries()) as events:
            async for event in events:
                if event is UNCHANGED:
                    continue
                # One after the other: what is applied last was read last.
                async with lock:
                    try:
                        rollouts.replace(await asyncio.to_thread(self.read))
                    except Stalled as refused:
                        rollouts.refuse(refused.message)
