"""What Prometheus' clients for any language tell of their process: memory, CPU, open files; by Linux, and elsewhere nothing.

Names and meanings: https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics; the source is proc(5).
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.server.families import Family

if TYPE_CHECKING:
    from collections.abc import Iterator


def families(proc: Path = Path("/proc")) -> Iterator[Family]:
    """As it is now; nothing where there is no such `proc`."""
    try:
        own = (proc / "self/stat").read_text("ascii", "replace")
        booted = _booted(proc)
        files = len(os.listdir(proc / "self/fd"))
    except OSError:
        return
    # The second field, our name in parentheses, may hold anything; these begin with the third.
    fields = own.rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    cpu = (int(fields[11]) + int(fields[12])) / ticks
    yield Family(
        "counter", "process_cpu_seconds", "Total user and system CPU time spent in seconds.", value=cpu
    )  # fmt: skip
    for name, told, value in (
        ("start_time_seconds", "Start time of the process since unix epoch in seconds.", booted + int(fields[19]) / ticks),
        ("virtual_memory_bytes", "Virtual memory size in bytes.", int(fields[20])),
        ("resident_memory_bytes", "Resident memory size in bytes.", int(fields[21]) * resource.getpagesize()),
        ("open_fds", "Number of open file descriptors.", files),
        ("max_fds", "Maximum number of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ):  # fmt: skip
        yield Family("gauge", f"process_{name}", told, value=value)


@cache
def _booted(proc: Path) -> int:
    """When the machine was, in Unix seconds."""
    # Once: with many cores the kernel takes a while to write it.
    stat = (proc / "stat").read_text("ascii", "replace")
    return next(int(line[6:]) for line in stat.splitlines() if line.startswith("btime "))
