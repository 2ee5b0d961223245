"""(q) Rollouts: 500 at a time, each with a metric that is checked every ten seconds, the shortest interval.

    python -m benchmarks.rollouts

A real API server and `flagstaff controller` as its service account (tests/cluster), and an HTTP server on
loopback that answers as Prometheus does. All of it shares the machine's processors.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import plane
from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median, percentile
from tests.cluster.objects import Namespace, configuration, flags, manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.cluster.controllers import ControllerProcess

ROLLOUTS, NAMESPACES, FLAGS, INTERVAL = 500, 5, 20, 10.0
SECONDS = 120.0
PATIENCE = 300.0
_ANSWER = json.dumps(
    {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "0.001"]}]}}
).encode()


def main() -> None:
    """From the first object to two minutes of checks."""
    with metric_server() as address, plane("--rollout-hosts", "127.0.0.1") as (cluster, process, _):
        spaces = [Namespace(cluster, f"shop-{number}") for number in range(NAMESPACES)]
        for space in spaces:
            space.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space.name}})
            provider = {"type": "prometheus", "address": address}
            space.apply(manifest("MetricTemplate", "errors", {"provider": provider, "query": "up"}))
        idle = timed(lambda: begin(spaces), lambda: all_in(spaces, "Idle"))
        exposed = timed(lambda: commit(spaces, "on"), lambda: all_in(spaces, "Progressing"))
        keep(
            f"{ROLLOUTS} FlagRollouts, a metric each {INTERVAL:g} s",
            [checked(spaces, process, idle, exposed)],
        )


def begin(spaces: Sequence[Namespace]) -> None:
    """The flag sets, and a rollout for each."""
    commit(spaces, "off")
    metric = {"name": "errors", "templateRef": {"name": "errors"}, "thresholdRange": {"max": 0.01}}
    for space, name in named(spaces):
        spec = {
            "flagSetRef": {"name": name},
            "flags": ["flag-*"],
            "steps": [{"share": 10, "minDuration": "1h"}],
            "analysis": {"interval": f"{INTERVAL:g}s", "metrics": [metric]},
        }
        space.apply(manifest("FlagRollout", name, spec))


def commit(spaces: Sequence[Namespace], variant: str) -> None:
    """A change of all flags of all sets."""
    document = json.loads(flags(**{f"flag-{number}": variant for number in range(FLAGS)}))
    for space, name in named(spaces):
        space.apply(configuration(name, flagSpec=document))


def named(spaces: Sequence[Namespace]) -> Iterator[tuple[Namespace, str]]:
    """The namespace and the name of each set."""
    for number in range(ROLLOUTS):
        yield spaces[number % len(spaces)], f"set-{number}"


def statuses(spaces: Sequence[Namespace]) -> dict[str, dict[str, Any]]:
    """By name, of all rollouts."""
    found = (each for space in spaces for each in space.all("flagrollout"))
    return {each["metadata"]["name"]: each.get("status", {}) for each in found}


def all_in(spaces: Sequence[Namespace], phase: str) -> bool:
    """Whether all rollouts are in a phase, and what they do there is served."""
    listed = list(statuses(spaces).values())
    served = phase == "Idle" or all(status.get("propagatedAt") for status in listed)
    return len(listed) == ROLLOUTS and served and all(status.get("phase") == phase for status in listed)


def timed(write: Callable[[], None], reached: Callable[[], bool]) -> float:
    """Seconds from the first write until it is so."""
    began = time.perf_counter()
    write()
    while not reached():
        if time.perf_counter() - began > PATIENCE:
            raise SystemExit("the rollouts do not get there")
        time.sleep(0.2)
    return time.perf_counter() - began


def checked(
    spaces: Sequence[Namespace], process: ControllerProcess, idle: float, exposed: float
) -> dict[str, Any]:
    """How far apart checks are."""
    time.sleep(INTERVAL)
    moments: dict[str, set[str]] = {}
    began, spent = time.perf_counter(), cpu_seconds(process.pid)
    while time.perf_counter() - began < SECONDS:
        for name, status in statuses(spaces).items():
            if "lastCheckAt" in status:
                moments.setdefault(name, set()).add(status["lastCheckAt"])
        time.sleep(INTERVAL / 4)
    passed, spent = time.perf_counter() - began, cpu_seconds(process.pid) - spent
    gaps = [
        (later - earlier).total_seconds()
        for times in moments.values()
        for earlier, later in pairwise([datetime.fromisoformat(text) for text in sorted(times)])
    ]
    return {
        "s to Idle": idle,
        "s to the first step": exposed,
        "checks": len(gaps),
        "s apart p50": median(gaps),
        "s apart p99": percentile(gaps, 0.99),
        "s apart max": max(gaps),
        "part of a processor": spent / passed,
        "MB resident": resident(process.pid),
    }


def resident(pid: int) -> float:
    """What a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def metric_server() -> Iterator[str]:
    """The address of a server that knows one value."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


if __name__ == "__main__":
    main()
