"""A repository on this machine, read in this process: listing its references starts no program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, RepositoryOpenFlag

from controller.runtime.reconciling.setbacks import Failed
from controller.sources.git.listing.names import TAGS

if TYPE_CHECKING:
    from pathlib import Path

# Process-wide in libgit2. We only read objects and references, and run nothing that a repository's
# configuration names: so one that belongs to another user is safe to read, and the user's own configuration
# has no say.
pygit2.settings.owner_validation = False
for _level in (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL):
    pygit2.settings.search_path[_level] = ""


class UnreadableFormatError(Exception):
    """A repository, but one with an extension that libgit2 does not know; git itself may."""


def open_repository(path: Path) -> pygit2.Repository:
    """A work tree's or linked work tree's top folder, or a bare repository.

    Raises `Failed` where there is none, `UnreadableFormatError` where git itself must be asked.
    """
    try:
        return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError as error:
        if not path.exists():
            raise Failed("RepositoryNotFound", f"{path} does not exist") from None
        if "unsupported" in str(error) or "extension" in str(error):
            raise UnreadableFormatError(str(error)) from error
        message = f"{path} is not the top folder of a Git repository"
        raise Failed("RepositoryNotFound", message) from error


def open_mirror(path: Path) -> pygit2.Repository:
    """A bare repository of our own. Raises pygit2.GitError where it is damaged."""
    return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE)


def list_references(repository: pygit2.Repository) -> tuple[dict[str, str], str | None]:
    """Full names with the commits that they mark, and the name HEAD stands for; as `choose` takes them."""
    refs: dict[str, str] = {}
    for name in repository.listall_references():
        oid = _target(repository, name)
        if oid is not None:
            refs[name] = _peeled(repository, oid) if name.startswith(TAGS) else str(oid)
    target = repository.lookup_reference("HEAD").raw_target
    if isinstance(target, pygit2.Oid):
        return refs | {"HEAD": str(target)}, None
    return refs, target.decode("utf-8", "replace")


def _target(repository: pygit2.Repository, name: str) -> pygit2.Oid | None:
    # A reference may go between the listing and the look, and a symbolic one may stand for nothing.
    try:
        target = repository.lookup_reference(name).resolve().target
    except (KeyError, pygit2.GitError):
        return None
    return target if isinstance(target, pygit2.Oid) else None


def _peeled(repository: pygit2.Repository, oid: pygit2.Oid) -> str:
    try:
        if repository.odb.read_header(oid)[0] != ObjectType.TAG:
            return str(oid)
        return str(repository[oid].peel(None).id)
    except (KeyError, pygit2.GitError):
        return str(oid)
