"""Files that survive a crash: a reader sees the old content or the new, never a part of either."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import tempfile
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

T = TypeVar("T")

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a volume without room."""
_UNFINISHED: Final = ".unfinished"
_SPARE: Final = ".spare"
_MARGIN: Final = 4096
DAMAGED: Final = ".damaged"
"""The suffix of a file that was set aside because its content cannot be trusted."""


def make_folder(path: Path) -> None:
    """Make the folder for its owner alone, and those above it, where they are missing. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


class FolderInUseError(OSError):
    """Another process has locked the folder; the text names it and says what to do."""


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Lock the folder, made where it is missing, until the block or the process ends; writes nothing to it.
    Raises FolderInUseError where another process holds the lock, OSError where the folder cannot be made or
    its file system has no locks.
    """
    make_folder(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"the state folder {path} is in use by another process; "
                "end that process or give this one another folder with --state-dir"
            ) from None
        yield
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, last: bool = True) -> None:
    """Replace `path` whole, readable by its owner alone; on return it would survive a power cut, its name
    only if it is the `last` write to the folder. Raises OSError with the old content untouched, unless only
    the last step failed, the folder's own fsync.
    """
    descriptor, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_UNFINISHED, dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    if last:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within the folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path, limit: int) -> bytes:
    """Return the file's content, or its first `limit` + 1 bytes if it is longer. Raises OSError."""
    with path.open("rb") as file:
        return file.read(limit + 1)


def set_aside(path: Path) -> Path:
    """Rename a damaged file, for a human to look at; returns its new name. Raises OSError."""
    aside = path.with_name(path.name + DAMAGED)
    os.replace(path, aside)
    return aside


def sweep(folder: Path, name: str = "*") -> None:
    """Remove what killed writes of `name` (a glob) left behind. Raises OSError."""
    for leftover in folder.glob(f".{name}.*{_UNFINISHED}"):
        leftover.unlink(missing_ok=True)


def save(path: Path, content: bytes) -> None:
    """Like `write_file`, but make a missing folder first. Raises OSError with the old content in place."""
    make_folder(path.parent)
    write_file(path, content)


def save_in_spare(path: Path, content: bytes) -> None:
    """Like `save`, but into room that is kept for it: the file before stays beside the new one as a spare,
    a quarter larger if the volume has that, and the next content is written over it. So a volume that others
    fill refuses no content as large as the one before. Without hard links no room is kept.

    Raises OSError with the old content in place.
    """
    make_folder(path.parent)
    spare = path.with_name(f".{path.name}{_SPARE}")
    descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "r+b") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(descriptor)
    before = path.with_name(f".{path.name}{_SPARE}{_UNFINISHED}")
    before.unlink(missing_ok=True)
    # Where there is no file yet, or no hard link can be made, another spare is made below.
    with contextlib.suppress(OSError):
        os.link(path, before)
    os.replace(spare, path)
    if before.exists():
        os.replace(before, spare)
    sync_folder(path.parent)
    _grow(spare, len(content) + len(content) // 4 + _MARGIN)


def _grow(spare: Path, size: int) -> None:
    """Give the spare so many bytes of the volume, if it has them."""
    with contextlib.suppress(OSError):
        descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)


def free_bytes(folder: Path) -> int:
    """Return how many bytes this process may still write to the folder's volume. Raises OSError."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def load(path: Path, limit: int, decode: Callable[[bytes], T]) -> T | None:
    """What `decode` makes of the file's first `limit` + 1 bytes; None where there is no file. Where `decode`
    raises ValueError the file is set aside and logged as an error: None. Raises OSError.
    """
    try:
        sweep(path.parent, path.name)
        content = read_file(path, limit)
    except FileNotFoundError:
        return None
    try:
        return decode(content)
    except ValueError as error:
        log.error("%s: it was damaged and is not served: %s", set_aside(path), error)  # noqa: TRY400 - the cause is in the text
        return None
