"""Files that survive a crash: a reader sees the old content or the new, never a part of either."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from typing import TYPE_CHECKING, Final

from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from pathlib import Path

_UNFINISHED: Final = ".unfinished"
DAMAGED: Final = ".damaged"
"""The suffix of a file that was set aside because its content cannot be trusted."""


def make_folder(path: Path) -> None:
    """Make the folder for its owner alone, and those above it, where they are missing. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_file(path: Path, content: bytes) -> None:
    """Replace `path` whole, readable by its owner alone, and return once it would survive a power cut.

    Raises OSError with the old content untouched; only when the last step (the folder's own fsync)
    fails may the new content be in place already.
    """
    descriptor, unfinished = tempfile.mkstemp(
        prefix=f".{path.name}.", suffix=_UNFINISHED, dir=path.parent
    )
    try:
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    sync_folder(path.parent)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Make renames within the folder survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path, limit: int) -> bytes:
    """The file's bytes, or `limit` + 1 of them when it has more. Raises OSError."""
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


def as_failed(error: OSError, what: str) -> Failed:
    """The setback for a disk that refused: StorageFull where space or quota ran out, else StorageFailed."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    cause = error.strerror or type(error).__name__
    return Failed("StorageFull" if full else "StorageFailed", f"{what}: {cause}")
