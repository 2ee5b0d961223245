"""A repository on this machine, read in this process: its references, and its newest commit."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pygit2
from pygit2.enums import ConfigLevel, FileStatus, ObjectType, RepositoryOpenFlag

from controller.api.addresses import parse_location
from controller.api.parsing import InvalidTextError
from controller.api.references import TAGS
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.git_credentials import SHA256_REPOSITORY
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.sources.backend import Revision

KEPT: Final = "refs/kept/"
"""Where a mirror has its references, each of one commit."""

# Process-wide in libgit2. We only read objects and references, and run nothing that a repository's
# configuration names: so one that belongs to another user is safe to read, and the user's own configuration
# has no say.
pygit2.settings.owner_validation = False
for _level in (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL):
    pygit2.settings.search_path[_level] = ""


class UnreadableFormatError(Exception):
    """A repository, but one with an extension that libgit2 does not know; git itself may."""


class DamagedRepositoryError(Exception):
    """An object, a reference or a file of a repository is missing or broken; the text says which."""


_DAMAGE: Final = (pygit2.GitError, KeyError, ValueError, OSError)
"""What libgit2 raises where an object is missing or broken, or its file cannot be read."""


@contextlib.contextmanager
def report_damage() -> Iterator[None]:
    """Raise libgit2's errors as `DamagedRepositoryError`, which helpers can send, or as MemoryError."""
    try:
        yield
    except _DAMAGE as error:
        if "memory" in str(error).lower():
            raise MemoryError(str(error)) from error
        missing = isinstance(error, KeyError)
        raise DamagedRepositoryError(
            f"object {error.args[0]} is missing" if missing else str(error)
        ) from error


def open_repository(path: Path) -> pygit2.Repository:
    """A work tree's top folder or a bare repository. Raises Failed or Stalled with what to do about it;
    `UnreadableFormatError` for what git itself might read.
    """
    try:
        return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, ValueError) as error:
        raise _open_failure(path, str(error)) from error


def _open_failure(path: Path, cause: str) -> Exception:
    if not path.exists():
        return Failed("RepositoryNotFound", f"{path} does not exist")
    if "unknown object format" in cause:
        return Stalled("UnsupportedObjectFormat", f"{path}: {SHA256_REPOSITORY}")
    if "unsupported" in cause or "extension" in cause:
        return UnreadableFormatError(cause)
    if "not found" not in cause:
        why = cause.removeprefix(f"{path}: ")
        message = f"the Git repository {path} cannot be opened: {why}; correct its .git/config"
        return Failed("RepositoryDamaged", message)
    top = _top_folder(path)
    if top is not None:
        below = path.resolve().relative_to(top).as_posix()
        message = f"{path} is a folder of the Git repository {top}; name that, with --path {below}"
    elif (path / ".git").exists():
        message = f"{path}/.git is no whole Git repository (git -C {path} status says more); clone it again"
    else:
        message = (
            f"{path} is not a Git repository; make it one (git init, git add, git commit), or serve its "
            f"files as they are: flagstaff up {path} --worktree"
        )
    return Failed("RepositoryNotFound", message)


def _top_folder(path: Path) -> Path | None:
    """The top folder of the work tree that `path` is in."""
    try:
        inside = pygit2.discover_repository(str(path))
        return None if inside is None else Path(pygit2.Repository(inside).workdir).resolve()
    except (pygit2.GitError, TypeError, ValueError):
        # A bare repository has no work tree.
        return None


def open_mirror(path: Path) -> pygit2.Repository:
    """A bare repository of our own. Raises pygit2.GitError where it is damaged."""
    return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE)


def list_references(repository: pygit2.Repository) -> tuple[dict[str, str], str | None]:
    """Full names with the commits that they mark, and the name HEAD stands for; as `choose` takes them."""
    refs: dict[str, str] = {}
    for name in repository.listall_references():
        oid = _target(repository, name)
        if oid is not None:
            refs[name] = _peel(repository, oid) if name.startswith(TAGS) else str(oid)
    target = repository.lookup_reference("HEAD").raw_target
    if isinstance(target, pygit2.Oid):
        return refs | {"HEAD": str(target)}, None
    return refs, target.decode("utf-8", "replace")


def _target(repository: pygit2.Repository, name: str) -> pygit2.Oid | None:
    # A reference may go between the listing and its lookup, and a symbolic one may stand for nothing.
    try:
        target = repository.lookup_reference(name).resolve().target
    except (KeyError, pygit2.GitError):
        return None
    return target if isinstance(target, pygit2.Oid) else None


def _peel(repository: pygit2.Repository, oid: pygit2.Oid) -> str:
    try:
        if repository.odb.read_header(oid)[0] != ObjectType.TAG:
            return str(oid)
        return str(repository[oid].peel(None).id)
    except (KeyError, pygit2.GitError):
        return str(oid)


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
        inside = pygit2.discover_repository(str(folder))
        if inside is None:
            return None
        repository = open_repository(Path(inside))
        if repository.head_is_unborn:
            return None
        commit = repository.head.peel(pygit2.Commit)
        name = "" if repository.head_is_detached else f"{repository.head.shorthand}@"
        return Described(
            f"{name}sha1:{commit.id}",
            _has_changes(repository, folder),
            _origin(repository),
            f"{commit.author.name} <{commit.author.email}>",
            commit.message.strip().partition("\n")[0],
            timestamp(datetime.fromtimestamp(commit.commit_time, UTC)),
        )
    except (Setback, UnreadableFormatError, pygit2.GitError, KeyError, ValueError, OSError):
        # Options supply what cannot be read here.
        return None


def uncommitted_files(path: Path, revision: Revision) -> tuple[str, ...]:
    """The files of the work tree at `path` that differ from `revision`; none if another branch is checked out
    or they cannot be read. Blocks.
    """
    try:
        repository = open_repository(path)
        if repository.is_bare or repository.head_is_unborn or repository.head.shorthand != revision.name:
            return ()
        return tuple(_uncommitted_names(repository))
    except (Setback, UnreadableFormatError, pygit2.GitError, KeyError, ValueError, OSError):
        return ()


def _uncommitted_names(repository: pygit2.Repository) -> Iterator[str]:
    for name, status in repository.status(untracked_files="all").items():
        if status not in {FileStatus.CURRENT, FileStatus.IGNORED}:
            yield name


def _has_changes(repository: pygit2.Repository, folder: Path) -> bool:
    if repository.is_bare:
        return False
    below = folder.resolve().relative_to(repository.workdir).as_posix()
    prefix = "" if below == "." else f"{below}/"
    return any(name.startswith(prefix) or prefix.startswith(name) for name in _uncommitted_names(repository))


def _origin(repository: pygit2.Repository) -> str:
    try:
        return parse_location(repository.remotes["origin"].url or "").shown
    except (KeyError, InvalidTextError):
        return ""


def find_folders(path: Path) -> tuple[Path, ...]:
    """The folders in which references of the repository at `path` change; empty without one. Blocks."""
    try:
        own = _git_folder(path)
        shared = own
        if (common := own / "commondir").is_file():
            shared = (own / common.read_text(encoding="utf-8").strip()).resolve()
        if not (own / "HEAD").exists():
            return ()
    except (OSError, UnicodeDecodeError):
        return ()
    # `HEAD` and `packed-refs` are in a linked work tree's own folder and in the one that all share.
    folders = dict.fromkeys((own, shared))
    for top in (shared / "refs", shared / "reftable"):
        folders |= dict.fromkeys(Path(folder) for folder, _, _ in os.walk(top))
    return tuple(folders)


def _git_folder(path: Path) -> Path:
    inside = path / ".git"
    if inside.is_file():
        # A linked work tree's or submodule's: `gitdir: <path>`.
        text = inside.read_text(encoding="utf-8").strip()
        return (path / text.removeprefix("gitdir:").strip()).resolve()
    return (inside if inside.is_dir() else path).resolve()
