"""(g) What a slow or hostile peer costs the others: the latency of well-behaved calls with it and without.

    python -m benchmarks.hostile [evaluator] [flagd] [proxy] [tenants]

Well-behaved are gRPC calls at a fixed rate over 8 connections (h2load): evaluations, and of the proxy a set
of 100 flags. Beside them, on the same CPU as h2load, is a process that misbehaves in one way
(`benchmarks.hostile_peers`) for as long as they are measured. The aims: calls whose p99 stays below 50 ms, at
most 128 MB, and an event loop that is never held for 50 ms. `tenants` writes many objects of each kind and of
each two kinds that meet; the aims there: 250 ms, and 128 MB above rest.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.hostile_peers import ASKED, CALL, EVALUATOR, FETCH, PROXY, SELECTOR, beside
from benchmarks.hostile_tenants import rows as tenant_rows
from benchmarks.loads import GRPC, grpc_body, h2load, need
from benchmarks.observed import Observed
from benchmarks.results import keep, median
from benchmarks.servers import FLAGS, PINNED, Server, flagd, flagd_binary, ours
from benchmarks.serving import document
from tests.cluster.patience import within
from tests.cluster.proxies import manifest
from tests.cluster.replica import run_replica
from tests.cluster.stubbed import Proxy
from tests.stub_api import stub_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from benchmarks.hostile_peers import Attack

ROUNDS, SECONDS = 3, 1
_OBJECT = "/apis/core.openfeature.dev/v1beta1/namespaces/{}/featureflagconfigurations/{}"


@dataclass(frozen=True, slots=True)
class Calls:
    """The well-behaved."""

    name: str
    path: str
    body: bytes
    rate: int
    """So many a second."""
    least: int = 0
    """Bytes of the smallest right answer."""


EVALUATIONS = Calls("gRPC calls", CALL, grpc_body("targeting"), 2_000)
FETCHES = Calls("fetches of a set from the proxy", FETCH, ASKED, 500, least=len(document(FLAGS)) // 2)


@contextlib.contextmanager
def proxy() -> Iterator[Server]:
    """Our proxy, of a stub of an API server with one set."""
    with tempfile.TemporaryDirectory() as scratch, stub_api(Path(scratch)) as stub:
        namespace, name = SELECTOR.split("/")
        stub.put(_OBJECT.format(namespace, name), manifest(namespace, name, json.loads(document(FLAGS))))
        process = Proxy(Path(scratch), stub)
        process.command = [*PINNED, *process.command]
        with run_replica(process):
            within(lambda: process.ask("/readyz")[0] == 200, process.log_text)
            sync, management = (f"http://127.0.0.1:{port}" for port in (process.sync, process.management))
            yield Server(process.pid, sync, "", management)


def measure(
    server: Server, scratch: Path, calls: Calls, name: str | None, *, is_ours: bool
) -> dict[str, Any]:
    """The figures of one attack."""
    observed = Observed(server.pid, server.management if is_ours else "")
    url = f"{server.grpc}{calls.path}"
    with beside(server, name):
        _, p50, p99 = h2load(url, calls.body, GRPC, scratch, paced=(calls.rate, SECONDS), least=calls.least)
    return {"p50 us": p50, "p99 us": p99, **observed.figures()}


def rounds(
    start: Callable[[], AbstractContextManager[Server]],
    calls: Calls = EVALUATIONS,
    attacks: Mapping[str, Attack] = EVALUATOR,
    *,
    is_ours: bool = True,
) -> list[dict[str, Any]]:
    """A row for each attack, and one for none of them."""
    found: dict[str | None, list[dict[str, Any]]] = {name: [] for name in (None, *attacks)}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(ROUNDS):
            with start() as server:
                for name, figures in found.items():
                    figures.append(measure(server, Path(scratch), calls, name, is_ours=is_ours))
    at_rest = median([each["p99 us"] for each in found[None]])
    return [row(name, figures, at_rest) for name, figures in found.items()]


def row(name: str | None, figures: list[dict[str, Any]], at_rest: float) -> dict[str, Any]:
    """Medians, but the worst of memory and lag: those are bounds."""
    p99 = median([each["p99 us"] for each in figures])
    lags = [each["loop lag below ms"] for each in figures if each["loop lag below ms"] is not None]
    return {
        "beside": name or "none",
        "p50 us": median([each["p50 us"] for each in figures]),
        "p99 us": p99,
        "p99 to that at rest": round(p99 / at_rest, 2),
        "peak MB": max(each["peak MB"] for each in figures),
        "loop lag below ms": max(lags, default=None),
        "empty loop's lag below ms": max(each["empty loop's lag below ms"] for each in figures),
        "CPU s": median([each["CPU s"] for each in figures]),
        "waited for a CPU s": median([each["waited for a CPU s"] for each in figures]),
    }


def main(servers: list[str]) -> None:
    """No attack, then each in turn; on ours, and on flagd where there is one."""
    if "tenants" in servers:
        keep("crowds of a tenant's objects", tenant_rows())
    if servers == ["tenants"]:
        return
    need("h2load", "taskset")
    calls = f"{EVALUATIONS.rate:,} {EVALUATIONS.name} a second beside a hostile peer"
    if "evaluator" in servers:
        keep(calls, rounds(ours))
    if "flagd" in servers and (binary := flagd_binary()) is not None:
        keep(f"{calls}, flagd", rounds(partial(flagd, binary), is_ours=False))
    if "proxy" in servers:
        rows = rounds(proxy, FETCHES, PROXY)
        keep(f"{FETCHES.rate:,} {FETCHES.name} a second beside a hostile peer", rows)


if __name__ == "__main__":
    main(sys.argv[1:] or ["evaluator", "flagd", "proxy", "tenants"])
