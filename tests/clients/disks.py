"""Disks that run full under a running process."""

from __future__ import annotations

import contextlib
import resource
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


class Disk(Protocol):
    """A folder whose disk can be filled under a running process, and emptied again."""

    folder: Path

    def fill(self, process: subprocess.Popen[str]) -> None: ...
    def empty(self, process: subprocess.Popen[str]) -> None: ...


class SmallDisk:
    """A file system that runs out of bytes, or of files (ENOSPC)."""

    def __init__(self, folder: Path, *, each: int) -> None:
        self.folder = folder
        self._each = each

    def fill(self, process: subprocess.Popen[str]) -> None:
        (self.folder / "filler").mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            for number in range(1_000_000):
                (self.folder / "filler" / str(number)).write_bytes(b"x" * self._each)

    def empty(self, process: subprocess.Popen[str]) -> None:
        for file in (self.folder / "filler").iterdir():
            file.unlink()


class Limited:
    """A process that may write no file (EFBIG): what a quota does, and needs no privilege."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, process: subprocess.Popen[str]) -> None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def empty(self, process: subprocess.Popen[str]) -> None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
