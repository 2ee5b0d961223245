"""(d) What an evaluator costs to keep and to start.

python -m benchmarks.footprint
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.results import keep, median
from benchmarks.serving import document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLAGS = (1_000, 10_000)
ROUNDS = 7
IDLE_SECONDS = 20.0
MANAGEMENT = 18014
START = (
    str(Path(sys.executable).parent / "flagstaff"), "evaluator", "start", "--host=127.0.0.1",
    "--log-level=warning", f"--management-port={MANAGEMENT}", "--port=0", "--sync-port=0", "--ofrep-port=0",
)  # fmt: skip


def main() -> None:
    """`flagstaff evaluator start` with a file of flags: from its start to ready, in wall and CPU time,
    resident memory, CPU when idle.
    """
    for flags in FLAGS:
        keep(f"footprint with {flags:,} flags", [_row(flags)])


def _row(flags: int) -> dict[str, float]:
    starts, spent, resident = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flags.json"
        file.write_bytes(document(flags))
        environment = bytecode_environment(Path(folder) / "bytecode")
        with evaluator(file, environment):
            pass
        for _ in range(ROUNDS):
            started = time.perf_counter()
            with evaluator(file, environment) as pid:
                starts.append((time.perf_counter() - started) * 1000)
                spent.append(cpu_seconds(pid) * 1000)
                resident.append(megabytes(pid))
        with evaluator(file, environment) as pid:
            before = cpu_seconds(pid)
            time.sleep(IDLE_SECONDS)
            idle = (cpu_seconds(pid) - before) / IDLE_SECONDS * 100
            settled = megabytes(pid)
    return {
        "start to ready ms": median(starts),
        "start to ready CPU ms": median(spent),
        "resident MB": median(resident),
        "resident MB after 20 s": settled,
        "idle CPU %": idle,
    }


def bytecode_environment(folder: Path) -> dict[str, str]:
    """An environment in which Python keeps bytecode in `folder`: what is installed has some, a checkout may
    be configured to keep none.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


@contextlib.contextmanager
def evaluator(file: Path, environment: Mapping[str, str]) -> Iterator[int]:
    """The process id of an evaluator that is ready."""
    process = subprocess.Popen([*START, "--uri", f"file:{file}"], env=environment)
    try:
        while not ready():
            if process.poll() is not None:
                raise SystemExit("the evaluator ended instead of serving")
            time.sleep(0.002)
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def ready() -> bool:
    """Whether it answers 200 on /readyz."""
    connection = http.client.HTTPConnection("127.0.0.1", MANAGEMENT, timeout=5)
    with contextlib.suppress(OSError), contextlib.closing(connection):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False


def megabytes(pid: int) -> float:
    """Resident."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Time that its threads have run so far; the kernel's ticks are too coarse for one that idles."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


if __name__ == "__main__":
    main()
