"""(b) Evaluations over real sockets, per core, beside the compiled form and a real flagd where there is one.

    python -m benchmarks.wire [--beside CHECKOUT] [--only WORDS] [--rounds NUMBER]

With --beside, the evaluator of another checkout (after `make setup` there) takes flagd's place, the compiled
forms are compared where both have one, else the pure, and nothing is kept. --only: the loads whose names hold
these words.

The server has one CPU, the load generator another (h2load for HTTP/2, wrk for HTTP/1.1). The server's CPU
time is read from the kernel, so that a figure is requests per second and core. The compiled form is that of
`make native`, flagd that of FLAGD_BINARY or PATH; the columns of what is not there are missing, and the
output says so.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.loads import (
    GRPC,
    JSON,
    callers,
    connect_body,
    cpu_seconds,
    grpc_body,
    h2load,
    need,
    ofrep_body,
    wrk,
)
from benchmarks.results import keep, median, show
from benchmarks.servers import COMPILED, certificate, compiled_python, flagd, flagd_binary, ours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from benchmarks.loads import Figures
    from benchmarks.servers import Server

ROUNDS = 3
SERVICE = "/flagd.evaluation.v1.Service"


def grpc(flag: str, method: str) -> Callable[[Server, Path], Figures]:
    """gRPC, by TLS if the server has it."""
    return lambda server, scratch: h2load(f"{server.grpc}{SERVICE}/{method}", grpc_body(flag), GRPC, scratch)


def connect(version: str) -> Callable[[Server, Path], Figures]:
    """Connect's JSON for a flag with targeting."""
    path, body = f"{SERVICE}/ResolveString", partial(connect_body, "targeting")
    if version == "1.1":
        return lambda server, scratch: wrk(f"{server.grpc}{path}", body, scratch)
    return lambda server, scratch: h2load(f"{server.grpc}{path}", body(), JSON, scratch)


def ofrep(server: Server, scratch: Path, *, varied: bool = False) -> Figures:
    """One flag with targeting."""
    return wrk(f"{server.ofrep}/ofrep/v1/evaluate/flags/targeting", ofrep_body, scratch, varied=varied)


def measure_calls(kind: str, content_type: str = "application/grpc") -> Callable[[Server, Path], Figures]:
    """A flag with targeting by `benchmarks.callers`, whose calls are all alike or each with headers and a
    context of its own.
    """
    return lambda server, _: callers(server.grpc, f"{SERVICE}/ResolveString", content_type, "targeting", kind)


CLEAR: dict[str, Callable[[Server, Path], Figures]] = {
    "gRPC static": grpc("static", "ResolveBoolean"),
    "gRPC targeting": grpc("targeting", "ResolveString"),
    "gRPC targeting, all calls alike": measure_calls("same"),
    "gRPC targeting, each call its own": measure_calls("varied"),
    "OFREP targeting": ofrep,
    "OFREP targeting, each call its own": partial(ofrep, varied=True),
    "Connect JSON targeting, HTTP/1.1": connect("1.1"),
    "Connect JSON targeting, HTTP/2": connect("2"),
    "Connect JSON targeting, HTTP/2, each call its own": measure_calls("varied", "application/json"),
}
SECURE: dict[str, Callable[[Server, Path], Figures]] = {
    "gRPC static, TLS": grpc("static", "ResolveBoolean"),
    "gRPC targeting, TLS": grpc("targeting", "ResolveString"),
}


def measure(
    start: Callable[[tuple[str, str] | None], AbstractContextManager[Server]], scratch: Path, only: str
) -> dict[str, tuple[float, float, float]]:
    """(requests a CPU second, p50 us, p99 us) by what was asked."""
    found = {}
    for loads, secure in ((CLEAR, False), (SECURE, True)):
        chosen = {name: load for name, load in loads.items() if only in name}
        if not chosen:
            continue
        with start(certificate(scratch) if secure else None) as server:
            for name, load in chosen.items():
                before = cpu_seconds(server.pid)
                requests, p50, p99 = load(server, scratch)
                found[name] = (requests / (cpu_seconds(server.pid) - before), p50, p99)
    return found


def compare(
    servers: Mapping[str, Callable[[tuple[str, str] | None], AbstractContextManager[Server]]],
    rounds: int,
    only: str,
) -> list[dict[str, object]]:
    """Alternate the servers, and compare medians: a row for each load."""
    found: dict[str, list[dict[str, tuple[float, float, float]]]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(rounds):
            for name, start in servers.items():
                found[name].append(measure(start, Path(scratch), only))
    rows = []
    for load in next(iter(found.values()))[0]:
        row: dict[str, object] = {"load": load}
        for name, each in found.items():
            for index, figure in enumerate(("requests/s/core", "p50 us", "p99 us")):
                row[f"{name} {figure}"] = median([one[load][index] for one in each])
        speeds = {name: median([one[load][0] for one in found[name]]) for name in servers}
        row.update(
            {f"{one} times {other}": speeds[one] / speeds[other] for one, other in combinations(servers, 2)}
        )
        rows.append(row)
    return rows


def main() -> None:
    """Compare ours with flagd, or with another checkout's."""
    need("h2load", "wrk", "taskset")
    parser = argparse.ArgumentParser()
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    compiled = COMPILED.exists()
    if given.beside is not None:
        beside = given.beside.resolve()
        compiled = compiled and compiled_python(beside).exists()
        here, there = partial(ours, compiled=compiled), partial(ours, checkout=beside, compiled=compiled)
        name = "compiled" if compiled else "pure"
        show("over the wire", compare({name: here, "beside": there}, given.rounds, given.only))
        return
    binary = flagd_binary()
    if not compiled:
        print("no compiled form: `make native` builds it")
    servers = ({"compiled": partial(ours, compiled=True)} if compiled else {}) | {"pure": ours}
    servers |= {"flagd": partial(flagd, binary)} if binary else {}
    rows = compare(servers, given.rounds, given.only)
    show("over the wire", rows) if given.only else keep("over the wire", rows)


if __name__ == "__main__":
    main()
