"""What the command line costs before it does anything.

python -m benchmarks.commands
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.results import median
from controller.cli import VERBS

if TYPE_CHECKING:
    from collections.abc import Mapping

ROUNDS = 7
FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")
_FLAG = 'flags: {new-cart: {state: ENABLED, variants: {"on": true, "off": false}, defaultVariant: "off"}}\n'


def main() -> None:
    """`--help` of the script and of each verb, the evaluator's own script, and the verbs that work on a
    repository of one flag: CPU and wall time.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "flags.yaml").write_text(_FLAG)
        for command in _commands(folder):
            walls, cpus, _ = zip(*(run(command) for _ in range(ROUNDS)), strict=True)
            shown = " ".join([Path(command[0]).name, *command[1:]]).replace(folder, "DIR")
            print(f"{shown:60} {median([*cpus]):6.0f} ms CPU {median([*walls]):6.0f} ms wall")


def _commands(folder: str) -> list[list[str]]:
    commands = [[FLAGSTAFF, "--help"], [sys.executable, "-m", "evaluator", "--help"]]
    commands += [[FLAGSTAFF, verb, "--help"] for verb in VERBS]
    git = ["git", "-C", folder, "-c", "user.name=us", "-c", "user.email=us@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "add new-cart"]):
        subprocess.run([*git, *arguments], check=True)
    commands += [
        [FLAGSTAFF, "lint", folder],
        [FLAGSTAFF, "lint", "-f", f"{folder}/flags.yaml"],
        [FLAGSTAFF, "eval", folder, "new-cart"],
        [FLAGSTAFF, "diff", folder],
        [FLAGSTAFF, "schema", "layer"],
        [FLAGSTAFF, "completion", "bash"],
    ]
    return commands


class Usage(NamedTuple):
    """What a command took."""

    wall: float
    """Milliseconds."""
    cpu: float
    """Milliseconds."""
    memory: float
    """Resident MB at most."""


def run(
    command: list[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    differs: bool = False,
) -> Usage:
    """Run a command in a folder. One that fails ends the measurement; `differs`: 1 is no failure."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, differs):
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Usage(wall * 1000, (used.ru_utime + used.ru_stime) * 1000, used.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
