"""(d) What an evaluator costs to keep and to start.

python -m benchmarks.footprint
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.results import keep, median

ROUNDS = 7


def main() -> None:
    """Resident memory with 1,000 flags, idle, and the time from the start of the process to ready."""
    starts, resident = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving", "1000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ports = json.loads(process.stdout.readline() if process.stdout else "{}")
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}/readyz"):
            starts.append((time.perf_counter() - started) * 1000)
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        resident.append(int(line.split()[1]) / 1024)
        process.communicate(timeout=20)
    keep(
        "footprint with 1,000 flags",
        [{"start to ready ms": median(starts), "resident MB": median(resident)}],
    )


if __name__ == "__main__":
    main()
