"""Reads trees of strangers in a helper process: a delta may unpack to a gigabyte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.process.helper import TaskLimits
from controller.sources.git.reading.tree import read_tree
from controller.sources.git.signatures.judging import judge

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.git.signatures.judging import Question, Verdict
    from controller.sources.looking.deadline import LimitedTasks
    from controller.sources.provider import Fetched, Revision, TreeLimits

HELPERS: Final = 2
MODULE: Final = "controller.sources.git.reading.tree"
"""What a helper loads at its start."""
TASK: Final = TaskLimits(cpu_seconds=20.0)


@dataclass(frozen=True, slots=True)
class LimitedReader:
    """A `TreeReader` for one look at one source."""

    tasks: LimitedTasks

    async def __call__(
        self, path: Path, revision: Revision, into: Path, limits: TreeLimits, paths: tuple[str, ...], /
    ) -> Fetched:
        """As `write_commit`. Raises Stalled (LimitExceeded) for what takes too much to be read."""
        return await self.tasks.run(f"reading {revision}", read_tree, path, revision, into, limits, paths)

    async def judge(self, path: Path, question: Question) -> Verdict:
        """As `judging.judge`. Raises Stalled (LimitExceeded) for what takes too much to be judged."""
        return await self.tasks.run(f"verifying commit {question.commit}", judge, path, question)
