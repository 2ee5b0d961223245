"""Where a flag is defined in a commit, and who changed it last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.flagsets.reading.layers import LayersRefused, read_layers
from controller.local.compared import read_tree
from evaluator.flags.layers.layer import as_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controller.local.local_options import LocalOptions
    from evaluator.flags.layers.layer import Layer


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
