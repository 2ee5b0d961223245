"""Options of the verbs that build a flag set without a cluster, and the files of `--rollout`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from controller.flagsets.compose import FailurePolicy, ProvenanceDetail
from controller.runtime.clock import now
from controller.runtime.setbacks import Stalled
from evaluator.flags.model import EMPTY, Bucketing
from evaluator.sync.file_source import FileSource
from evaluator.sync.source import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from controller.flagsets.patches import Patch
    from evaluator.flags.overrides import Override


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


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """One source and one flag set."""

    source: str
    reference: str | None = None
    paths: tuple[str, ...] = (".",)
    depends_on: tuple[str, ...] = ()
    """Paths of other flag sets of the source, whose flags these may need."""
    insecure: bool = False
    """Speak plain HTTP with a registry."""
    interval: float = 10.0
    """Seconds between two polls of a remote."""
    substitute: Mapping[str, str] | None = None
    """Values of variables; None: nothing is substituted."""
    age_keys: str = ""
    """Age identities, one a line, that decrypt what sops encrypted."""
    verify_keys: Mapping[str, bytes] = field(default_factory=lambda: EMPTY)
    """Public keys by the names of their files; with one of them what is read must be signed. Empty: none."""
    patches: tuple[Patch, ...] = ()
    """JSON Patches of the merged layers."""
    lenient: bool = False
    """Whether flags with warnings are served."""
    policy: FailurePolicy = FailurePolicy.PER_FLAG
    bucketing: Bucketing = Bucketing.V2
    show_bucketing: bool = False
    """Name the generation of `fractional` in every answer's metadata."""
    provenance: ProvenanceDetail = ProvenanceDetail.FULL
    """What every response's metadata says of its commit."""
    prune_guard: bool = False
    """Refuse a revision that removes flags in bulk, instead of warning about it."""
    tests: str = "Warn"
    """What a failing test of a flag is worth, as `spec.tests.mode` of a FlagSet has it."""
    worktree: bool = False
    """Read the files of a folder as they are on disk, instead of commits."""
    state_dir: Path | None = None
    """Where mirror, artifacts and applied objects outlive the process; None: a temporary folder."""
    overrides: tuple[Override, ...] = ()
    """Flags that are set by hand while the process runs."""
    rollouts: tuple[Mapping[str, Any], ...] = ()
    """Manifests of FlagRollouts, MetricTemplates and FlagOverrides, and of Secrets for the templates."""
    rollout_files: RolloutFiles | None = None
    """Where these manifests stand; None: they stay as they are."""
    tokens: Path | None = None
    """A file of bearer tokens, one of which reading and reporting at the sync port needs."""
    endpoint: str | None = None
    """Of a bucket: the URL of its store."""
    region: str | None = None
    """Of a bucket."""

    @property
    def read_paths(self) -> tuple[str, ...]:
        """All paths whose files are read."""
        return (*self.paths, *self.depends_on)
