"""(n) Alerts: from an Event to its POST, how much a provider that hangs delays pushes, and a burst of Events.

    python -m benchmarks.alerts

A real API server and `flagstaff controller` as its service account (tests/cluster), Git over HTTP, and a
server on loopback that is posted to. The burst is in this process: the sink of Events and a provider that is
away.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import Watch, plane
from benchmarks.results import keep, median, percentile
from tests.cluster.listener import Listener, run_listener
from tests.cluster.spines import spine_in
from tests.worlds.events import Desk, alert, event
from tests.worlds.flags import flags
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.objects import Namespace
    from tests.cluster.plane import Plane

ROUNDS, PUSHES = 10, 6
WAYS = ("a provider that receives nothing", "a provider that answers", "a provider that hangs")
APART = 0.6
"""Seconds from one push to the next: a provider is sent two messages a second."""
EVENTS = 10_000


def main() -> None:
    """All three."""
    with plane("--allow-local-providers") as (cluster, _, folder):
        measure_pushes(cluster, folder)
    keep(f"{EVENTS} Events at once, that a provider is notified of", [burst()])


def measure_pushes(cluster: Plane, folder: Path) -> None:
    """Each way in turn, several rounds, so that what else the machine does hits all of them."""
    written: dict[str, list[float]] = {way: [] for way in WAYS}
    delays: list[float] = []
    with spine_in(cluster, "shop", folder) as spine, run_listener() as listener:
        spine.wait_ready("ffc")
        watched = Watch(spine)
        for number in range(ROUNDS):
            for way in WAYS:
                provide(spine, listener, way)
                for push in range(PUSHES):
                    name = f"flag-{WAYS.index(way)}-{number}-{push}"
                    commit = spine.repository.commit("next", flags__json=flags(**{name: "on"}))
                    began = time.perf_counter()
                    spine.poke("flagsource")
                    moment = watched.wait(commit)
                    written[way].append(moment - began)
                    if way == WAYS[1]:
                        delays.append(wait_for_post(listener, commit) - moment)
                    time.sleep(APART)
    base = written[WAYS[0]]
    keep(
        "push to FeatureFlagConfiguration, beside a provider", [row(way, written[way], base) for way in WAYS]
    )
    after = {"posts": len(delays), "p50 ms": median(delays) * 1e3, "p99 ms": percentile(delays, 0.99) * 1e3}
    keep("what is written to the POST about it", [after])


def provide(space: Namespace, listener: Listener, way: str) -> None:
    """Have alerts sent so."""
    listener.answering.set()
    spec: dict[str, Any] = {"type": "generic", "address": listener.url}
    sources = [{"kind": "FlagSet", "name": "none" if way == WAYS[0] else "*"}]
    space.apply(
        manifest("FlagProvider", "flags", spec),
        manifest("FlagAlert", "flags", {"providerRef": {"name": "flags"}, "eventSources": sources}),
    )
    for kind in ("flagprovider", "flagalert"):
        space.wait_ready(kind)
    if way == WAYS[2]:
        listener.answering.clear()


def wait_for_post(listener: Listener, commit: str) -> float:
    """The moment at which the server answered the message about a commit, on time.perf_counter's clock."""
    name = "flagstaff.dev/revision"
    return listener.wait(lambda posted: str(posted["metadata"].get(name)).endswith(commit)).moment


def row(way: str, times: list[float], base: list[float]) -> dict[str, Any]:
    """Compared with the first."""
    return {
        "beside": way,
        "pushes": len(times),
        "p50 ms": median(times) * 1e3,
        "p99 ms": percentile(times, 0.99) * 1e3,
        "p50 to the first": median(times) / median(base),
        "p99 to the first": percentile(times, 0.99) / percentile(base, 0.99),
    }


def burst() -> dict[str, Any]:
    """Of as many objects, each with another text, while the provider is away."""
    events = [
        event("Applied", f"revision {number}: {'x' * 500}", name=f"set-{number}") for number in range(EVENTS)
    ]
    desk = Desk(alert())
    began = time.perf_counter()
    desk.accept(*events)
    seconds = time.perf_counter() - began
    desk = Desk(alert())
    tracemalloc.start()
    desk.accept(*events)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    status = desk.box.status()
    return {
        "us an Event": seconds / EVENTS * 1e6,
        "memory KB": round(most / 1024),
        "status KB": round(len(json.dumps(status.fields())) / 1024),
        "wait": status.waiting,
        "given up": status.dead,
    }


if __name__ == "__main__":
    main()
