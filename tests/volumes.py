"""Small file systems of their own, which really run full."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def mount_tmpfs(folder: Path, options: str) -> Iterator[bool]:
    """Mount a tmpfs with these options (`size=1m`) at the folder, which is made, until the block ends; say
    whether that is permitted here.
    """
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def small_volume(folder: Path, options: str = "size=1m") -> Iterator[Path]:
    """The same, and skip the test where it is not permitted."""
    with mount_tmpfs(folder, options) as permitted:
        if not permitted:
            pytest.skip("mounting a small file system is not permitted here")
        yield folder


def fill(file: Path, left: int = 0) -> None:
    """Write to the file until its volume has no room, but for so many bytes."""
    with file.open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    if left:
        with file.open("ab") as filler:
            filler.truncate(max(0, file.stat().st_size - left))
