"""Programs of Debian's packages, unpacked once into a cache outside the repository; nothing is installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.go import CACHE

_SECONDS: Final = 300


def programs(package: str, *names: str) -> Path:
    """The folder with the programs `names` of the newest `package` that apt knows, whose signature it checks.
    Raises subprocess.SubprocessError or OSError where the package cannot be had.
    """
    folder = CACHE / f"debian-{package}"
    if all((folder / name).is_file() for name in names):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        download = ["apt-get", "-qq", "download", package]
        if subprocess.run(
            download, cwd=temporary, check=False, stdout=sys.stderr, timeout=_SECONDS
        ).returncode:
            # A machine that has just been installed has no list of packages yet.
            subprocess.run(["apt-get", "-qq", "update"], check=True, stdout=sys.stderr, timeout=_SECONDS)
            subprocess.run(download, cwd=temporary, check=True, stdout=sys.stderr, timeout=_SECONDS)
        for archive in Path(temporary).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, temporary], check=True)
        for name in names:
            (Path(temporary) / "usr/bin" / name).replace(folder / name)
    return folder
