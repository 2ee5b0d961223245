"""Finds the last author of a line, by `git blame` of a repository with its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from git import Repo
from git.exc import GitError

from controller.runtime.user_text.plain_text import one_line
from controller.sources.backend import LineAuthor, Revision
from controller.sources.git_cli.git_environment import environment

if TYPE_CHECKING:
    from pathlib import Path

    from controller.api.parsing.git_url import Location

_MAX_TEXT: Final = 200


def blame_line(path: Path, location: Location, revision: Revision, file: str, line: int) -> LineAuthor | None:
    """The last change of `line` (from 1) of `file` at `revision`; None where git finds none. Blocks."""
    commit = revision.digest.removeprefix("sha1:")
    try:
        with Repo(path) as repository:
            repository.git.update_environment(**environment(location, None, None))
            hunk = next(repository.blame_incremental(commit, file, L=f"{line},{line}"), None)
            if hunk is None:
                return None
            changed = hunk.commit
            author = f"{changed.author.name} <{changed.author.email}>"
            return LineAuthor(
                changed.hexsha, one_line(author, _MAX_TEXT), one_line(str(changed.summary), _MAX_TEXT)
            )
    except (GitError, ValueError, OSError):
        # No such line or file, or a repository that GitPython cannot read: there is no author to name.
        return None
