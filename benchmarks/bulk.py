"""(h) All of 10,000 flags with targeting asked for at once: how long the answer takes, and the longest pause
that others saw meanwhile.

python -m benchmarks.bulk

`at once` makes the answer within one turn of the loop; `in slices` is what the evaluator does. `first` is the
first answer after a swap, when nothing is encoded yet. A pause is the time between two turns of a loop that
does nothing else.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from benchmarks.results import keep, median
from benchmarks.swap import document as targeted
from benchmarks.swap import read
from evaluator.host.gc_policy import GcPolicy
from evaluator.http.deferred import Deferred, at_once
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.offload import Offload
from evaluator.http.routes import Routes, merge
from evaluator.server import evaluate_flags as ofrep
from evaluator.server import evaluation, management
from evaluator.server.context import ContextSources
from evaluator.server.metrics import Metrics
from evaluator.server.service import EvaluationService
from evaluator.store.store import Store
from tests.stores import swap

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import Call, Request
    from evaluator.http.routes import Answer

ROUNDS = 5
FLAGS = 10_000
RESOLVE_ALL = "/flagd.evaluation.v1.Service/ResolveAll"
HEAD = "host: x\r\nconnection: close\r\ncontent-type: application/proto\r\ncontent-length: 0\r\n\r\n"
ASKED = {
    "OFREP": f"POST {ofrep.PREFIX} HTTP/1.1\r\n{HEAD}",
    "ResolveAll": f"POST {RESOLVE_ALL} HTTP/1.1\r\n{HEAD}",
    "/metrics": f"GET /metrics HTTP/1.1\r\n{HEAD}",
}


def routes(store: Store) -> Routes:
    """What is asked for, on one port."""
    metrics = Metrics(store, time.monotonic)
    service = EvaluationService(store, ContextSources(), time.monotonic, [metrics.count])
    answers = evaluation.Evaluation(service)
    return merge(
        ofrep.routes(ofrep.Ofrep(service), None),
        management.routes(store, metrics, Offload(), time.monotonic, management.Start(store)),
        Routes(unary={RESOLVE_ALL: answers.resolve_all}),
    )


def whole(made: Routes) -> Routes:
    """The same, nothing deferred."""

    def plain(run: Callable[[Request], Answer], request: Request) -> Answer:
        answer = run(request)
        return answer.finish(lambda: at_once(answer.steps)) if isinstance(answer, Deferred) else answer

    def call(run: Callable[[Call, bytes], bytes | Deferred[bytes]], to: Call, body: bytes) -> bytes:
        answer = run(to, body)
        return answer.finish(lambda: at_once(answer.steps)) if isinstance(answer, Deferred) else answer

    return replace(
        made,
        unary={path: partial(call, run) for path, run in made.unary.items()},
        http={at: partial(plain, run) for at, run in made.http.items()},
    )


async def ask(port: int, request: str) -> None:
    """One request on a connection of its own, its answer read whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    await reader.read()
    writer.close()


class Pauses:
    """How long it was between the turns of the loop, in milliseconds."""

    def __init__(self) -> None:
        self.found: list[float] = []

    async def watch(self) -> None:
        """Until cancelled."""
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.found.append((now - last) * 1000)
            last = now


async def measure(*, sliced: bool) -> dict[str, float]:
    """Milliseconds: each asked for twice."""
    store, gc_policy = Store(), GcPolicy()
    with gc_policy.pause_full_collections():
        swap(store, read(targeted(1))[0], now=0.0)
        if store.snapshot is not None:
            store.snapshot.compiled.compile_all()
    made = routes(store)
    listener = Listener(made if sliced else whole(made), Limits(), name="benchmark")
    port = await listener.start("127.0.0.1", 0)
    pauses, found = Pauses(), dict[str, float]()
    watching = asyncio.create_task(pauses.watch())
    for what, request in ASKED.items():
        for turn in ("first", "again"):
            await asyncio.sleep(0.05)
            pauses.found.clear()
            started = time.perf_counter()
            await ask(port, request)
            found[f"{what} {turn} ms"] = (time.perf_counter() - started) * 1000
            found[f"{what} {turn} pause ms"] = max(pauses.found)
    watching.cancel()
    await listener.drain(0)
    return found


async def main() -> None:
    """Medians of a few rounds."""
    rows: list[dict[str, object]] = []
    for name, sliced in (("at once", False), ("in slices", True)):
        rounds = [await measure(sliced=sliced) for _ in range(ROUNDS)]
        rows.append({"made": name} | {key: median([one[key] for one in rounds]) for key in rounds[0]})
    keep(f"all of {FLAGS:,} flags asked for", rows)


if __name__ == "__main__":
    uvloop.run(main())
