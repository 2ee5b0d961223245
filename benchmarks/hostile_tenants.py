"""What crowds of a tenant's objects cost the controller, proxy, admission and page: of each kind, of each two
kinds that meet in a reconciler (tests/hostile_crowds.py), and the two whose product was the costliest. Part
of `benchmarks.hostile`.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.observed import Observed
from controller.api import featureflagconfiguration, flagoverride, flagset
from tests.clients.attacks import forget_peak, peak_megabytes, resident_megabytes
from tests.cluster.replica import run_replica
from tests.cluster.stubbed import Admission, Controller, Page, Proxy
from tests.hostile_crowds import INSTALLED, crowd, pairs
from tests.stub_api import stub_api

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.cluster.replica import Replica
    from tests.stub_api import StubApi

ALONE, EACH = 60, 20
"""Objects of a kind alone, and of each of two."""
LARGEST: Final = {flagset.KIND: 1, featureflagconfiguration.KIND: 1_000, flagoverride.KIND: 1_000}
"""Overrides of one set, and objects that are labelled as its."""
SECONDS, LARGEST_SECONDS, ALL_SECONDS = 5.0, 30.0, 360.0
"""Most of a row, of that of the largest crowd, and of all."""
_HELD: Final = re.compile(r"loop was held for (\S+) s (.*)")
_DEPTH: Final = re.compile(r"^flagstaff_queue_depth\{[^}]*\} (\S+)$", re.MULTILINE)


def rows() -> Iterator[dict[str, Any]]:
    """A row for no objects, each kind, each two, and the largest crowd, as far as there is time."""
    until = time.monotonic() + ALL_SECONDS
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        stub = stack.enter_context(stub_api(folder))
        made = (Controller(folder, stub), Proxy(folder, stub), Admission(folder, stub), Page(folder, stub))
        processes = [stack.enter_context(run_replica(process)) for process in made]
        time.sleep(SECONDS)
        bench = Bench(stub, processes)
        idle = bench.row("none", {}, SECONDS)
        yield idle
        crowds: dict[str, Mapping[str, int]] = {kind: {kind: ALONE} for kind in INSTALLED}
        crowds |= {" and ".join(pair): dict.fromkeys(pair, EACH) for pair in pairs() if len({*pair}) == 2}
        # At last: what it takes of memory stays.
        crowds[" and ".join(f"{count:,} {kind}" for kind, count in LARGEST.items())] = LARGEST
        for name, counts in crowds.items():
            longest, after = (LARGEST_SECONDS, 0.0) if counts is LARGEST else (SECONDS, LARGEST_SECONDS)
            if time.monotonic() + longest + after > until:
                print(f"  no time is left for {name}", flush=True)
                continue
            row = bench.row(name, counts, longest)
            row["to an idle controller's"] = round(row["longest hold ms"] / idle["longest hold ms"], 1)
            yield row


@dataclass(slots=True)
class Bench:
    """The processes, and what they had resident at rest."""

    stub: StubApi
    processes: Sequence[Replica]
    _rest: list[float]

    def __init__(self, stub: StubApi, processes: Sequence[Replica]) -> None:
        self.stub = stub
        self.processes = processes
        self._rest = [resident_megabytes(process.pid) for process in processes]

    def row(self, name: str, counts: Mapping[str, int], seconds: float) -> dict[str, Any]:
        """The figures of a crowd, which is written, changed once and removed."""
        controller = self.processes[0]
        for process in self.processes:
            forget_peak(process.pid)
        observed = Observed(controller.pid, f"http://127.0.0.1:{controller.management}")
        logged, began = len(controller.log_text()), time.monotonic()
        bodies = [
            body
            for generation in (1, 2)
            for kind, count in counts.items()
            for body in crowd(kind, "hostile", count, generation)
        ]
        written = 0
        time.sleep(0.0 if bodies else seconds)
        for body in bodies:
            if time.monotonic() < began + seconds:
                self.stub.put(self.stub.path_of(body), body)
                written += 1
        drained = self._wait(began + seconds)
        took = time.monotonic() - began
        figures = observed.figures()
        log = controller.log_text()[logged:]
        holds = [(float(held) * 1000, place) for held, place in _HELD.findall(log)]
        longest, place = max(holds, default=(figures["loop lag below ms"], ""))
        grown = {
            f"{process.log.stem} grown MB": round(peak_megabytes(process.pid) - rest, 1)
            for process, rest in zip(self.processes, self._rest, strict=True)
        }
        self.stub.remove("hostile")
        self._wait(time.monotonic() + 1.0)
        return {
            "crowd": name,
            "writes": f"{written} of {len(bodies)}",
            "longest hold ms": longest,
            "empty loop's ms": figures["empty loop's lag below ms"],
            **grown,
            "CPU s": figures["CPU s"],
            "waited for a CPU s": figures["waited for a CPU s"],
            "seconds": round(took, 1),
            "all reconciled": drained,
            "kept the Lease": "no longer leads" not in log,
            "held": place,
        }

    def _wait(self, until: float) -> bool:
        """Whether nothing is left to be reconciled before then."""
        quiet = 0
        while quiet < 2 and time.monotonic() < until:
            time.sleep(0.25)
            depths = [float(depth) for depth in _DEPTH.findall(self.processes[0].metrics())]
            quiet = quiet + 1 if depths and not any(depths) else 0
        return quiet == 2
