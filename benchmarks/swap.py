"""(e) A new set of 10,000 flags: read, made ready, served, delivered to 100 event streams; and the longest
pause that others saw meanwhile.

python -m benchmarks.swap

`on the loop` swaps as simply as can be: only reading is in a thread. `aside` is what the evaluator does:
`SnapshotSwapper`, `GcPolicy`, event streams that compare in a thread. A pause is the time between two turns
of a loop that evaluates one flag in each. The first set is served before; every round is a process-wide state
of its own, as a process of ours would be after its start.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.results import keep, median, percentile
from evaluator.flags.canonical import digest
from evaluator.flags.merge import parse
from evaluator.host.gc_policy import GcPolicy
from evaluator.http.messages import Call, Code, Zipped
from evaluator.http.scheduler import FairQueue
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import resolve
from evaluator.server.event_stream import EventStreams
from evaluator.store.store import Content, Report, SnapshotSwapper, Store, run_in_thread
from tests.stores import swap

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import FlagSet

ROUNDS = 5
FLAGS = 10_000
STREAMS = 100
CONTEXT = {"targetingKey": "user-1", "tier": "gold"}


def document(version: int) -> bytes:
    """Flags with targeting, all of which differ between versions."""
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", {"fractional": [["on", version], ["off", 100]]}]}
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "targeting": rule,
    }
    return json.dumps({"flags": {f"flag-{index}": flag for index in range(FLAGS)}}).encode()


def read(content: bytes) -> tuple[FlagSet, str]:
    """Parse and digest, as a pipeline does, in a thread beside the serving loop."""
    flag_set = parse(content, file="flags.json").flag_set
    return flag_set, digest(flag_set)


class Sink:
    """An event stream whose peer reads all at once."""

    on_writable: Callable[[], None] | None = None
    on_closed: Callable[[], None] | None = None
    writable = True
    closed = False
    gzip = False
    on_ended: Callable[[Code], None] | None = None

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def send(self, message: bytes | Zipped) -> bool:
        """Note when a change came; the greeting is short."""
        assert isinstance(message, bytes)
        if len(message) > 1000:
            self.scene.received.append(time.perf_counter())
            if len(self.scene.received) == STREAMS:
                self.scene.all_received.set()
        return True

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """Nothing is to be ended."""


def in_place(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    """`run_in_thread` without a thread."""
    done(work())


class Scene:
    """A store that serves one set, its event streams, and a task that evaluates all the time."""

    def __init__(self, *, aside: bool) -> None:
        self.aside = aside
        self.store = Store()
        self.received: list[float] = []
        self.all_received = asyncio.Event()
        self.gc_policy = GcPolicy()
        self.exchange = SnapshotSwapper(self.store, lambda: 0.0, self.gc_policy)
        loop = asyncio.get_running_loop()
        self.events = EventStreams(self.store, loop, FairQueue(), run=run_in_thread if aside else in_place)
        self.pauses: list[float] = []
        self.done = False

    async def swap(self, content: bytes) -> float:
        """Read and serve; when reading was done."""
        with self.gc_policy.pause_full_collections() if self.aside else nullcontext():
            flag_set, found = await asyncio.to_thread(read, content)
        parsed = time.perf_counter()
        if self.aside:
            await self.exchange.apply(Report("", 0.0, Content(flag_set, found)))
        else:
            swap(self.store, flag_set, now=0.0, content=found)
        return parsed

    async def evaluate(self) -> None:
        """One evaluation each turn, noting how long it was between them."""
        last = time.perf_counter()
        while not self.done:
            if self.store.snapshot is not None:
                resolve(self.store.snapshot.compiled, "flag-77", FlagType.BOOLEAN, CONTEXT, 0)
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.pauses.append((now - last) * 1000)
            last = now


async def measure(*, aside: bool) -> dict[str, float]:
    """One swap, from the document's bytes to the last event."""
    scene = Scene(aside=aside)
    following = document(2)
    await scene.swap(document(1))
    await asyncio.sleep(0.3)
    for _ in range(STREAMS):
        call = Call("/flagd.evaluation.v2.Service/EventStream", (), "127.0.0.1:1")
        scene.events.open(call, b"", Sink(scene))
    beside_it = asyncio.create_task(scene.evaluate())
    await asyncio.sleep(0.1)
    scene.pauses.clear()
    started = time.perf_counter()
    parsed = await scene.swap(following)
    served = time.perf_counter()
    await scene.all_received.wait()
    await asyncio.sleep(0.3)
    scene.done = True
    await beside_it
    scene.events.close()
    return {
        "read ms": (parsed - started) * 1000,
        "serve ms": (served - parsed) * 1000,
        "events ms": (max(scene.received) - served) * 1000,
        "longest pause ms": max(scene.pauses),
        "p99.9 pause ms": percentile(scene.pauses, 0.999),
    }


async def main() -> None:
    """Medians of a few rounds, and the worst pause of all."""
    rows = []
    for name, aside, interval in (
        ("on the loop", False, 0.005),
        ("aside", True, 0.005),
        ("aside, threads switch after 1 ms", True, 0.001),
    ):
        sys.setswitchinterval(interval)
        rounds = []
        for _ in range(ROUNDS):
            gc.unfreeze()
            gc.collect()
            rounds.append(await measure(aside=aside))
        row: dict[str, object] = {"swap": name}
        row |= {key: median([one[key] for one in rounds]) for key in rounds[0]}
        row["worst pause ms"] = max(one["longest pause ms"] for one in rounds)
        rows.append(row)
    keep(f"{FLAGS:,} flags read, served and delivered to {STREAMS} event streams", rows)


if __name__ == "__main__":
    uvloop.run(main())
