"""(ab) How long callers wait while a set of 10,000 flags is swapped every second: gRPC calls at a fixed rate,
half of what the evaluator answers at rest.

    python -m benchmarks.tail

`flagstaff evaluator start` follows a file on one CPU, h2load is on another. Calls are sent when they are due,
as long as fewer than 100 of a connection are unanswered. Where `time to plan` is well above 1, calls were
held back, and the latencies are too low. A set is read on the CPU that answers.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.flag_tests import FLAGS, definition
from benchmarks.loads import CLIENT_CPU, cpu_seconds, grpc_body, need
from benchmarks.results import keep, median, percentile
from benchmarks.servers import COMPILED
from benchmarks.streams import Evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS, SECONDS, CONNECTIONS, PERIOD = 3, 10, 8, 1.0
PATH = "/flagd.evaluation.v1.Service/ResolveInt"
HEADERS = ("content-type: application/grpc", "te: trailers")
_TRIAL = 20_000
"""Calls that say what one costs."""


def load(evaluator: Evaluator, scratch: Path, *words: str) -> list[int]:
    """Call; return the time of each call, in microseconds. One that fails ends the measurement."""
    log, body = scratch / "log", scratch / "body"
    body.write_bytes(grpc_body("flag-00077"))
    log.unlink(missing_ok=True)
    subprocess.run(
        ["taskset", "-c", CLIENT_CPU, "h2load", *words, "-c", str(CONNECTIONS), "-d", str(body),
         "--log-file", str(log), *(word for header in HEADERS for word in ("-H", header)),
         f"http://127.0.0.1:{evaluator.ports['grpc']}{PATH}"],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    calls = [line.split("\t") for line in log.read_text(encoding="ascii").splitlines()]
    if any(status != "200" for _, status, _ in calls):
        raise SystemExit("h2load: not every call succeeded")
    return [int(spent) for _, _, spent in calls]


def figures(evaluator: Evaluator, scratch: Path, rate: int, *, swapped: bool) -> dict[str, float]:
    """What callers wait for at a rate of calls a second."""
    ended = threading.Event()

    def swap() -> None:
        while swapped and not ended.wait(PERIOD):
            evaluator.change()

    swapping = threading.Thread(target=swap)
    swapping.start()
    began, used = time.perf_counter(), cpu_seconds(evaluator.pid)
    paced = (f"--rps={rate // CONNECTIONS}", "-n", str(rate * SECONDS), "-m", "100")
    spent = load(evaluator, scratch, *paced)
    passed = time.perf_counter() - began
    used = (cpu_seconds(evaluator.pid) - used) / passed
    ended.set()
    swapping.join()
    shares = {f"p{share * 100:g} ms": percentile(spent, share) / 1000 for share in (0.5, 0.99, 0.999)}
    return {**shares, "longest ms": max(spent) / 1000, "CPU %": used * 100, "time to plan": passed / SECONDS}


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each form, at rest and beside swaps."""
    flags = {f"flag-{number:05}": definition(number) for number in range(FLAGS)}
    for form in ("pure", "compiled"):
        if form == "compiled" and not COMPILED.exists():
            print("no compiled form: `make native` builds it")
            continue
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            evaluator = Evaluator(scratch, flags, compiled=form == "compiled")
            try:
                before = cpu_seconds(evaluator.pid)
                load(evaluator, scratch, "-n", str(_TRIAL), "-m", "4")
                rate = int(_TRIAL / (cpu_seconds(evaluator.pid) - before) / 2)
                for swapped in (False, True):
                    rounds = [figures(evaluator, scratch, rate, swapped=swapped) for _ in range(ROUNDS)]
                    row = {key: median([one[key] for one in rounds]) for key in rounds[0]}
                    beside = "a new set each second" if swapped else "nothing"
                    yield {"form": form, "beside": beside, "calls a second": rate, **row}
            finally:
                evaluator.stop()


def main() -> None:
    """Measure and keep."""
    need("h2load", "taskset")
    keep(f"calls at half of the load, {FLAGS:,} flags", rows())


if __name__ == "__main__":
    main()
