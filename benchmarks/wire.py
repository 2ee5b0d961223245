"""(b) Requests a second over the wire, by native clients, beside a real flagd where there is one.

    python -m benchmarks.wire

Needs `h2load` (nghttp2-client) and `wrk`. The server is held on one CPU and the client on another; server CPU time is read from the
kernel, so that a figure is requests per second and core. flagd is taken from FLAGD_BINARY or PATH; without it, its rows are missing and
the output says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.struct_pb2 import Struct
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2

from benchmarks.results import keep, median
from benchmarks.serving import document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS, REQUESTS, SECONDS = 3, 40_000, 5
CONTEXT: dict[str, str | bool | float] = {
    "targetingKey": "user-1",
    "tier": "gold",
    "email": "a@example.com",
    "age": 7,
    "beta": True,
}
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def ours() -> Iterator[tuple[int, int, int]]:
    """(process id, gRPC port, OFREP port) of our evaluator."""
    process = subprocess.Popen(
        ["taskset", "-c", "0", sys.executable, "-m", "benchmarks.serving", "100"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    ports = json.loads(process.stdout.readline() if process.stdout else "{}")
    try:
        yield process.pid, ports["grpc"], ports["ofrep"]
    finally:
        process.communicate(timeout=20)


@contextlib.contextmanager
def flagd(binary: str) -> Iterator[tuple[int, int, int]]:
    """The same of a real flagd."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flags.json"
        file.write_bytes(document(100))
        grpc, ofrep, management, sync = free_ports(4)
        process = subprocess.Popen(
            ["taskset", "-c", "0", binary, "start", "-f", f"file:{file}", "-p", str(grpc), "-r", str(ofrep),
             "-m", str(management), "-g", str(sync)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_ready(management)
            yield process.pid, grpc, ofrep
        finally:
            process.terminate()
            process.wait(20)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def ready(port: int) -> bool:
    """Whether /readyz says 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_ready(port: int) -> None:
    """Until /readyz says 200; at most ten seconds."""
    for _ in range(100):
        if ready(port):
            return
        time.sleep(0.1)
    raise SystemExit("flagd did not get ready")


def grpc_load(port: int, flag: str, method: str, body: Path) -> tuple[int, float, float]:
    """(requests, p50 us, p99 us) by h2load."""
    context = Struct()
    context.update(CONTEXT)
    message = evaluation_pb2.ResolveBooleanRequest(
        flag_key=flag, context=context
    ).SerializeToString()
    body.write_bytes(struct.pack(">BI", 0, len(message)) + message)
    log = body.with_suffix(".log")
    done = subprocess.run(
        ["taskset", "-c", "1", "h2load", "-n", str(REQUESTS), "-c", "8", "-m", "4", "-d", str(body),
         "--log-file", str(log), "-H", "content-type: application/grpc", "-H", "te: trailers",
         f"http://127.0.0.1:{port}/flagd.evaluation.v1.Service/{method}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    succeeded = re.search(r"(\d+) succeeded", done.stdout)
    if succeeded is None or int(succeeded[1]) != REQUESTS:
        raise SystemExit(f"h2load: not every request succeeded:\n{done.stdout}")
    times = sorted(
        int(line.split("\t")[2]) for line in log.read_text(encoding="ascii").splitlines()
    )
    log.unlink()
    return REQUESTS, times[len(times) // 2], times[int(len(times) * 0.99)]


def ofrep_load(port: int, flag: str, script: Path) -> tuple[int, float, float]:
    """(requests, p50 us, p99 us) by wrk."""
    body = json.dumps({"context": CONTEXT})
    script.write_text(
        f"wrk.method='POST'\nwrk.body='{body}'\nwrk.headers['Content-Type']='application/json'\n"
        "done=function(s,l,r) io.write(string.format('RESULT %d %d %d %d\\n', s.requests,"
        " s.errors.status+s.errors.read+s.errors.timeout+s.errors.connect,"
        " l:percentile(50), l:percentile(99))) end\n"
    )
    done = subprocess.run(
        ["taskset", "-c", "1", "wrk", "-t1", "-c32", f"-d{SECONDS}s", "-s", str(script),
         f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/{flag}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+)", done.stdout)
    if found is None or int(found[2]):
        raise SystemExit(f"wrk: not every request succeeded:\n{done.stdout}")
    return int(found[1]), int(found[3]), int(found[4])


def measure(
    pid: int, grpc: int, ofrep: int, scratch: Path
) -> dict[str, tuple[float, float, float]]:
    """(requests a CPU second, p50 us, p99 us) by what was asked."""
    loads: dict[str, Callable[[], tuple[int, float, float]]] = {
        "gRPC static": lambda: grpc_load(grpc, "static", "ResolveBoolean", scratch / "body"),
        "gRPC targeting": lambda: grpc_load(grpc, "targeting", "ResolveString", scratch / "body"),
        "OFREP targeting": lambda: ofrep_load(ofrep, "targeting", scratch / "load.lua"),
    }
    found = {}
    for name, load in loads.items():
        before = cpu_seconds(pid)
        requests, p50, p99 = load()
        found[name] = (requests / (cpu_seconds(pid) - before), p50, p99)
    return found


def main() -> None:
    """Alternate the servers, and compare medians."""
    missing = [tool for tool in ("h2load", "wrk", "taskset") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"needs {', '.join(missing)} (Debian: nghttp2-client, wrk, util-linux)")
    binary = os.environ.get("FLAGD_BINARY") or shutil.which("flagd")
    if binary is None:
        print(
            "no flagd: neither FLAGD_BINARY nor PATH names one, so there is nothing to compare with"
        )
    servers = {"flagstaff": ours} | ({"flagd": lambda: flagd(binary)} if binary else {})
    rounds: dict[str, list[dict[str, tuple[float, float, float]]]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(ROUNDS):
            for name, start in servers.items():
                with start() as (pid, grpc, ofrep):
                    rounds[name].append(measure(pid, grpc, ofrep, Path(scratch)))
    rows = []
    for load in rounds["flagstaff"][0]:
        row: dict[str, object] = {"load": load}
        for name, found in rounds.items():
            for index, figure in enumerate(("requests/s/core", "p50 us", "p99 us")):
                row[f"{name} {figure}"] = median([one[load][index] for one in found])
        if binary:
            pair = [
                median([one[load][0] for one in rounds[name]]) for name in ("flagstaff", "flagd")
            ]
            row["times flagd"] = pair[0] / pair[1]
        rows.append(row)
    keep("over the wire", rows)


if __name__ == "__main__":
    main()
