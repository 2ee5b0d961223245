"""What the command line costs before it does anything.

python -m benchmarks.commands
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.results import median
from controller.cli import VERBS

ROUNDS = 7
FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")


def main() -> None:
    """`--help` of the script and of each verb, and the evaluator's own script: CPU and wall time."""
    commands = [[FLAGSTAFF, "--help"], [sys.executable, "-m", "evaluator", "--help"]]
    commands += [[FLAGSTAFF, verb, "--help"] for verb in VERBS]
    for command in commands:
        walls, cpus = zip(*(run(command) for _ in range(ROUNDS)), strict=True)
        shown = " ".join([Path(command[0]).name, *command[1:]])
        print(f"{shown:40} {median([*cpus]):6.0f} ms CPU {median([*walls]):6.0f} ms wall")


def run(command: list[str]) -> tuple[float, float]:
    """Milliseconds of (wall, CPU) of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000, cpu * 1000


if __name__ == "__main__":
    main()
