"""The files of a folder as they are on disk, followed as a source: `flagstaff up --worktree`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import SUBJECT
from controller.local.worktree import WorkingTree, read_working_tree, working_tree_of
from controller.runtime.setbacks import Failed, Stalled
from controller.sources import source_files
from controller.sources.backend import NOTHING_ACCEPTED, AcceptedRevision, Fetched, LocalBackend, Revision
from evaluator.sync.watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from controller.local.local_options import LocalOptions

NAME: Final = "worktree"
"""The name in the revisions: `worktree@sha256:…`."""
_MOST_FOLDERS: Final = 10_000
"""Folders that are watched; changes in others are seen after the interval."""


@dataclass(frozen=True, slots=True)
class WorkingTreeBackend(LocalBackend):
    """The files of a folder that some paths mean. Implements `LocalBackend`."""

    folder: Path
    paths: tuple[str, ...]
    interval: float
    _trees: dict[Revision, WorkingTree] = field(default_factory=dict)
    """The tree that was read last."""

    shows_every_push = True
    epoch = ""
    lineage = ""

    @property
    def address(self) -> str:
        """The folder, as nothing else is called."""
        return f"{NAME}:{self.folder}"

    @property
    def display_name(self) -> str:
        """The folder, and that its files need not be committed."""
        return f"{self.folder} (files on disk)"

    @property
    def spec(self) -> dict[str, Any]:
        """A FlagSource of the folder as a repository."""
        return {"git": {"url": self.folder.as_uri()}}

    def whole(self) -> WorkingTreeBackend:
        """The same with all files."""
        return replace(self, paths=("**",), _trees={})

    async def resolve(self) -> Revision:
        """The digest of the files. Raises Stalled, Failed."""
        ignored = (
            [source_files.FILE] if await asyncio.to_thread((self.folder / source_files.FILE).is_file) else []
        )
        tree = await asyncio.to_thread(read_working_tree, self.folder, [*self.paths, *ignored])
        revision = Revision(NAME, f"sha256:{_digest(tree)}")
        self._trees.clear()
        self._trees[revision] = tree
        return revision

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        """Write the files that were read for `revision`. Raises Failed where they were read again since."""
        del accepted
        tree = self._trees.get(revision)
        if tree is None:
            raise Failed("ChangedMeanwhile", f"{self.folder} changed while it was read")
        await asyncio.to_thread(_write, tree, into)
        words = f"files on disk of {self.folder.name}"
        return Fetched(revision, {SUBJECT: words}, words, tree.skipped)

    async def changes(self) -> AsyncIterator[None]:
        """At once, then as files change, and every interval."""
        with contextlib.closing(FolderWatch(self.folder, _folders, _matters)) as watch:
            while True:
                # Armed before each poll: folders come and go, and what changes later is seen.
                await watch.arm()
                yield
                await watch.wait(self.interval)


def open_working_tree(options: LocalOptions) -> WorkingTreeBackend:
    """The files that the options' paths mean in the folder that their source is. Raises Stalled, Failed."""
    folder = working_tree_of(options.source)
    if folder is None or options.reference is not None:
        raise Stalled(
            "InvalidSpec", "--worktree reads the files of a folder on disk: name one, without --ref"
        )
    return WorkingTreeBackend(folder.absolute(), options.read_paths, options.interval)


def _digest(tree: WorkingTree) -> str:
    digest = hashlib.sha256()
    for name in sorted(tree.files):
        digest.update(f"{len(name)} {name} {len(tree.files[name])} ".encode())
        digest.update(tree.files[name])
    for name in tree.skipped:
        digest.update(f"{len(name)} {name}".encode())
    return digest.hexdigest()


def _write(tree: WorkingTree, into: Path) -> None:
    for name, content in tree.files.items():
        file = into / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _folders(root: Path) -> Iterator[Path]:
    for folder, folders, _ in islice(os.walk(root), _MOST_FOLDERS):
        folders[:] = [name for name in folders if name != ".git"]
        yield Path(folder)


def _matters(folder: Path, name: str) -> bool:
    """Whether a change of a name counts: what is in .git changes no definition."""
    del folder
    return name != ".git"
