"""Who reads a commit's files: this process in a thread, or a helper process. The helper imports `tree` alone,
without the event loop that this needs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from controller.sources.git.reading.tree import read_tree

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.limits import TreeLimits
    from controller.sources.provider import Fetched, Revision


class TreeReader(Protocol):
    """Reads the files of a commit, wherever that runs."""

    async def __call__(
        self, path: Path, revision: Revision, into: Path, limits: TreeLimits, paths: tuple[str, ...], /
    ) -> Fetched:
        """As `write_commit` of the repository at `path`."""


async def read_in_thread(
    path: Path, revision: Revision, into: Path, limits: TreeLimits, paths: tuple[str, ...], /
) -> Fetched:
    """A `TreeReader` for repositories whose objects are trusted: their size in memory is not limited."""
    return await asyncio.to_thread(read_tree, path, revision, into, limits, paths)
