"""What the command line costs before it does anything.

python -m benchmarks.commands
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import median
from controller.cli import VERBS

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
            walls, cpus = zip(*(run(command) for _ in range(ROUNDS)), strict=True)
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


def run(command: list[str]) -> tuple[float, float]:
    """Milliseconds of (wall, CPU) of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000, cpu * 1000


if __name__ == "__main__":
    main()
