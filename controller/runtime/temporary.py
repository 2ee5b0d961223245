"""Temporary folders, for files of a commit or keys for git. Stale ones are found by their locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_PREFIX: Final = "flagstaff-temporary-"
_TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """An empty folder that only we can read, until `remove`. All of it blocks."""

    path: Path
    _lock: int

    @classmethod
    def make(cls) -> Self:
        """Raises OSError."""
        for _ in range(_TRIES):
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # Another process that sweeps may find it before it is locked.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                folder = cls(path, _lock_folder(path))
                if path.exists():
                    return folder
                os.close(folder._lock)
        raise OSError(errno.EAGAIN, "temporary folders are removed by another process", tempfile.gettempdir())

    def remove(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep_temporary() -> None:
    """Remove the folders of dead processes: the system drops their locks, and nothing else."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            TemporaryFolder(path, _lock_folder(path)).remove()


def _lock_folder(path: Path) -> int:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        raise
    return folder
