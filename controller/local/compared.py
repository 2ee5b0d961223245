"""The trees that `flagstaff diff` compares: commits of a source, and its files as they are on disk."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.local.commits import read_commit
from controller.local.worktree import WorkingTree, read_working_tree, working_tree_of
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from controller.local.local_options import LocalOptions

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
        return WORKING_TREE, await asyncio.to_thread(read_working_tree, folder, options.paths)
    if reference is not None and folder is not None and not _REFERENCE.match(reference):
        reference = await asyncio.to_thread(_commit_named, str(folder), reference)
    fetched, tree = await read_commit(replace(options, reference=reference))
    return str(fetched.revision), WorkingTree(tree, tuple(fetched.skipped))


def _commit_named(folder: str, name: str) -> str:
    """`commit:SHA` for what Git calls `name` in a repository. Raises Failed."""
    import pygit2  # noqa: PLC0415 - other sources than repositories on disk do without it

    try:
        commit = pygit2.Repository(folder).revparse_single(name).peel(pygit2.Commit)
    except (KeyError, ValueError, pygit2.GitError) as error:
        message = f"{folder} has no commit {name!r}; a shallow clone has only its newest commits"
        raise Failed("ReferenceNotFound", message) from error
    return f"commit:{commit.id}"
