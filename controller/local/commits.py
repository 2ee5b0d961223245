"""The source of a verb that needs no cluster, its commits' files, and where a flag is defined in one."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api.meta import AUTHOR, VERIFIED_BY
from controller.artifacts.archive import pack, unpack
from controller.flagsets.layers import LayersRefused, read_layers
from controller.local.local_providers import provider_of
from controller.local.state import StateIdentity, state_folder
from controller.local.worktree import WorkingTree, read_working_tree, working_tree_of
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.source_files import quarantine
from evaluator.flags.layer import Layer, as_read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

    from controller.local.local_options import LocalOptions
    from controller.sources.backend import Fetched, LocalBackend, Revision


@contextlib.asynccontextmanager
async def open_backend(options: LocalOptions) -> AsyncIterator[tuple[LocalBackend, Path]]:
    """The source, and the folder for what is kept of it, temporary if none is named. Raises Setback."""
    async with provider_of(options.source).opened(options) as source:
        if options.verify_keys and not source.epoch:
            # A provider that verifies nothing must not pass for one that does.
            raise Stalled(
                "InvalidSpec", f"--verify-key: {source.display_name} is never verified; leave it out"
            )
        identity = StateIdentity(source.address, options.reference, options.paths, source.epoch)
        held = contextlib.ExitStack()
        folder = await asyncio.to_thread(held.enter_context, state_folder(options.state_dir, identity))
        try:
            yield source.with_folder(folder), folder
        finally:
            await asyncio.to_thread(held.close)


async def read_commit(options: LocalOptions) -> tuple[Fetched, Mapping[str, bytes]]:
    """The source's revision and its files, as far as `options.paths` could match. Raises Setback."""
    async with open_backend(options) as (source, _):
        return await files_of(source, await source.resolve())


async def files_of(source: LocalBackend, revision: Revision) -> tuple[Fetched, Mapping[str, bytes]]:
    """A revision's files, as an artifact of it would hold them. Raises Setback."""
    async with quarantine(f"the files of {revision}") as folder:
        fetched = await source.fetch(revision, folder)
        archive = await asyncio.to_thread(pack, folder)
        return fetched, await asyncio.to_thread(unpack, archive)


WORKING_TREE: Final = "working tree"
"""What a tree on disk is called."""
_REFERENCE: Final = re.compile(r"(tag|semver|name|commit|digest):")


async def read_tree(options: LocalOptions, reference: str | None) -> tuple[str, WorkingTree]:
    """The name and the files of one side: a commit, or, without a reference, what is on disk. `reference` is
    what Git understands, such as `HEAD~1` or the beginning of a commit's name, or what `--ref` takes.
    Raises Setback.
    """
    folder = await asyncio.to_thread(working_tree_of, options.source)
    if reference is None and folder is not None:
        return WORKING_TREE, await asyncio.to_thread(read_working_tree, folder, options.read_paths)
    if reference is not None and folder is not None and not _REFERENCE.match(reference):
        reference = await asyncio.to_thread(_commit_named, str(folder), reference)
    fetched, tree = await read_commit(replace(options, reference=reference))
    author, signer = fetched.metadata.get(AUTHOR, ""), fetched.metadata.get(VERIFIED_BY)
    return str(fetched.revision), WorkingTree(tree, tuple(fetched.skipped), author, signer)


def _commit_named(folder: str, name: str) -> str:
    """`commit:SHA` for what Git calls `name` in a repository. Raises Failed."""
    import pygit2  # noqa: PLC0415 - other sources than repositories on disk do without it

    try:
        repository = pygit2.Repository(folder)
    except pygit2.GitError as error:
        message = f"{folder} is no Git repository: make it one (git init, git add, git commit)"
        raise Failed("ReferenceNotFound", message) from error
    try:
        commit = repository.revparse_single(name).peel(pygit2.Commit)
    except (KeyError, ValueError, pygit2.GitError) as error:
        message = f"{folder} has no commit {name!r}; a shallow clone has only its newest commits"
        raise Failed("ReferenceNotFound", message) from error
    return f"commit:{commit.id}"


@dataclass(frozen=True, slots=True)
class FlagPlace:
    """Lines of a file that define a flag, or change it in a higher layer."""

    file: str
    line: int
    """The first line, from 1."""
    end: int
    """The last line."""


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest commit that changed some lines."""

    commit: str
    """40 hexadecimal digits."""
    author: str
    """`Name <mail>`."""
    time: int
    """Seconds since 1970."""
    subject: str


async def flag_places(options: LocalOptions, commit: str, key: str) -> tuple[FlagPlace, ...]:
    """The places of a flag in a commit, base first; none where the layers have no such flag. Raises
    Setback.
    """
    _, tree = await read_tree(options, f"commit:{commit}")
    try:
        layers = read_layers(tree.files, options.paths, tree.skipped, as_read)
    except LayersRefused:
        return ()
    return tuple(_places(layers, key))


def _places(layers: Sequence[Layer], key: str) -> Iterator[FlagPlace]:
    for layer in layers:
        if (piece := layer.flags.get(key)) is None:
            continue
        document = piece.document
        line = document.place(piece.path, key=True)[0]
        # The next flag of the file ends this one.
        starts = [
            other.document.place(other.path, key=True)[0]
            for other in layer.flags.values()
            if other.document is document
        ]
        following = [start - 1 for start in starts if start > line]
        end = min(following, default=len(document.text.splitlines()))
        yield FlagPlace(document.file, line, max(line, end))


async def last_change(folder: str, commit: str, places: Sequence[FlagPlace]) -> LastChange | None:
    """The newest commit that changed any of these lines, by the history up to `commit` of the repository in
    `folder`; None where there is no such history.
    """
    return await asyncio.to_thread(_last_change, folder, commit, places)


def _last_change(folder: str, commit: str, places: Sequence[FlagPlace]) -> LastChange | None:
    import pygit2  # noqa: PLC0415 - other sources than repositories on disk do without it

    try:
        repository = pygit2.Repository(folder)
        commits = [
            repository[hunk.final_commit_id].peel(pygit2.Commit)
            for place in places
            for hunk in repository.blame(
                place.file, newest_commit=commit, min_line=place.line, max_line=place.end
            )
        ]
    except (KeyError, ValueError, pygit2.GitError):
        return None
    if not commits:
        return None
    newest = max(commits, key=lambda changed: changed.commit_time)
    author = f"{newest.author.name} <{newest.author.email}>"
    subject = newest.message.partition("\n")[0]
    return LastChange(str(newest.id), author, newest.commit_time, subject)
