"""Trees of strangers, read in a helper process: a delta that unpacks to a gigabyte costs that process
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.runtime.process.helper import TaskLimits
from controller.runtime.process.helpers import HelperLostError, LimitExceededError
from controller.runtime.reconciling.setbacks import Failed, Stalled
from controller.sources.git.complaints import LIMIT
from controller.sources.git.reading.tree import read_tree
from controller.sources.git.signatures.judging import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from controller.runtime.process.helpers import Helpers
    from controller.runtime.tenancy.places import Places
    from controller.sources.git.signatures.judging import Question, Verdict
    from controller.sources.limits import TreeLimits
    from controller.sources.looking.deadline import Deadline
    from controller.sources.provider import Fetched, Revision

T = TypeVar("T")

HELPERS: Final = 2
MODULE: Final = "controller.sources.git.reading.tree"
"""What a helper loads at its start."""

_TASK: Final = TaskLimits(cpu_seconds=20.0)


@dataclass(frozen=True, slots=True)
class LimitedReader:
    """A `TreeReader` for one look at one source."""

    helpers: Helpers
    places: Places
    """Of the helpers: one namespace is given half."""
    namespace: str
    deadline: Deadline
    task: TaskLimits = _TASK

    async def __call__(
        self, path: Path, revision: Revision, into: Path, limits: TreeLimits, paths: tuple[str, ...], /
    ) -> Fetched:
        """As `write_commit`. Raises Stalled (LimitExceeded) for what takes too much to be read."""
        return await self._run(f"reading {revision}", read_tree, path, revision, into, limits, paths)

    async def judge(self, path: Path, question: Question) -> Verdict:
        """As `judging.judge`. Raises Stalled (LimitExceeded) for what takes too much to be judged."""
        return await self._run(f"verifying commit {question.commit}", judge, path, question)

    async def _run(self, what: str, function: Callable[..., T], /, *arguments: Any) -> T:
        try:
            async with self.places.place(self.namespace), self.deadline.running():
                return await self.helpers.run(self.task, function, *arguments)
        except LimitExceededError as error:
            message = f"{self.deadline.where}: {what} needs more {error.limit} than it may use"
            raise Stalled(LIMIT, f"{message} ({self.task.allowed(error.limit)})") from error
        except HelperLostError as error:
            raise Failed("GitOperationFailed", f"{self.deadline.where}: {what} failed: {error}") from error
