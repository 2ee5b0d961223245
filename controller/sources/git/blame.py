"""Who changed a line last, by `git blame` of a repository with its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from git import Repo
from git.exc import GitError

from controller.sources.git.isolation import environment
from controller.sources.provider import LineAuthor

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.git.git_url import Location
    from controller.sources.provider import Revision

_MAX_TEXT: Final = 200
"""Characters of a name or a subject."""


def blame_line(path: Path, location: Location, revision: Revision, file: str, line: int) -> LineAuthor | None:
    """The last change of `line` (from 1) of `file` at `revision`; None if there is none, or git cannot say.
    Blocks.
    """
    commit = revision.digest.removeprefix("sha1:")
    try:
        with Repo(path) as repository:
            repository.git.update_environment(**environment(location, None, None))
            found = next(repository.blame_incremental(commit, file, L=f"{line},{line}"), None)
            if found is None:
                return None
            changed = found.commit
            author = f"{changed.author.name} <{changed.author.email}>"
            return LineAuthor(changed.hexsha, _shown(author), _shown(str(changed.summary)))
    except (GitError, ValueError, OSError):
        # No such line or file, or a repository that GitPython cannot read: nobody is to blame.
        return None


def _shown(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:_MAX_TEXT]
