"""What an attacked process says of itself: its memory, and how late its event loop was, beside one that had
nothing to do on the same processors.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.loads import cpu_seconds, waited_seconds
from evaluator.host.loop_lag import NAME
from tests.clients.attacks import forget_peak, peak_megabytes, resident_megabytes

if TYPE_CHECKING:
    from typing import Any

_BUCKET = re.compile(rf'^{NAME}_bucket{{le="([^"]+)"}} (\S+)$', re.MULTILINE)


@dataclass(slots=True)
class Observed:
    """One process from now on."""

    pid: int
    management: str
    """The origin of its management port's URLs; empty: it has no histogram of ours."""
    _resident: float = field(init=False)
    _spent: float = field(init=False)
    _waited: float = field(init=False)
    _lags: dict[str, float] = field(init=False)
    _empty: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.empty_loop"]
        self._empty = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(self._empty.pid, os.sched_getaffinity(self.pid))
        assert self._empty.stdout is not None
        self._empty.stdout.readline()
        forget_peak(self.pid)
        self._resident = resident_megabytes(self.pid)
        self._spent = cpu_seconds(self.pid)
        self._waited = waited_seconds(self.pid)
        self._lags = self._read()

    def figures(self) -> dict[str, Any]:
        """Since then, once: resident memory at most and how much more that is, the bound below which all lags
        of the event loop were, the same of an empty loop, CPU time, and for how long the first thread, which
        has the loop, could have run but had no processor.
        """
        empty, _ = self._empty.communicate(timeout=60)
        peak = peak_megabytes(self.pid)
        return {
            "peak MB": round(peak, 1),
            "grown MB": round(peak - self._resident, 1),
            "loop lag below ms": self._worst(),
            "empty loop's lag below ms": float(empty),
            "CPU s": round(cpu_seconds(self.pid) - self._spent, 2),
            "waited for a CPU s": round(waited_seconds(self.pid) - self._waited, 2),
        }

    def _worst(self) -> float | None:
        now = self._read()
        # The buckets are cumulative: the last one that more looks passed than the one below it.
        below = worst = 0.0
        for bound, count in now.items():
            more = count - self._lags.get(bound, 0.0)
            if more > below:
                below, worst = more, float(bound) * 1000
        return worst if now else None

    def _read(self) -> dict[str, float]:
        if not self.management:
            return {}
        with urllib.request.urlopen(f"{self.management}/metrics", timeout=30) as answer:  # noqa: S310 - ours
            found = _BUCKET.findall(answer.read().decode())
        return {bound: float(count) for bound, count in found}
