"""Describes the newest commit of a folder's repository."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pygit2
from pygit2.enums import FileStatus

from controller.api.meta import timestamp
from controller.runtime.reconciling.setbacks import Setback
from controller.sources.git.git_url import parse_location
from controller.sources.git.reading.repository import UnreadableFormatError, open_repository


@dataclass(frozen=True, slots=True)
class Described:
    """The newest commit."""

    revision: str
    """`main@sha1:…`, or `sha1:…` where no branch is checked out."""
    changed: bool
    """Whether the folder has files that differ from the commit, or are not in it."""
    source: str
    """URL of the remote `origin`, without any name or password; empty where there is none."""
    author: str
    """`Name <mail>`."""
    subject: str
    created: str
    """RFC 3339, in UTC."""


def describe(folder: Path) -> Described | None:
    """None where no repository has the folder, or it has no commit yet. Blocks."""
    try:
        found = pygit2.discover_repository(str(folder))
        if found is None:
            return None
        repository = open_repository(Path(found))
        if repository.head_is_unborn:
            return None
        commit = repository.head.peel(pygit2.Commit)
        name = "" if repository.head_is_detached else f"{repository.head.shorthand}@"
        return Described(
            f"{name}sha1:{commit.id}",
            _changed(repository, folder),
            _origin(repository),
            f"{commit.author.name} <{commit.author.email}>",
            commit.message.strip().partition("\n")[0],
            timestamp(datetime.fromtimestamp(commit.commit_time, UTC)),
        )
    except (Setback, UnreadableFormatError, pygit2.GitError, KeyError, ValueError, OSError):
        # Options supply what cannot be read here.
        return None


def _changed(repository: pygit2.Repository, folder: Path) -> bool:
    if repository.is_bare:
        return False
    below = folder.resolve().relative_to(repository.workdir).as_posix()
    prefix = "" if below == "." else f"{below}/"
    same = {FileStatus.CURRENT, FileStatus.IGNORED}
    return any(
        name.startswith(prefix) or prefix.startswith(name)
        for name, status in repository.status().items()
        if status not in same
    )


def _origin(repository: pygit2.Repository) -> str:
    try:
        return parse_location(repository.remotes["origin"].url or "").shown
    except (KeyError, Setback):
        return ""
