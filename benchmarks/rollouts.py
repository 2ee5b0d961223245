"""(q) Rollouts: 500 at a time, each with a metric that is checked every ten seconds, the shortest interval.

    python -m benchmarks.rollouts

The reconcilers of a controller over a cluster in memory, which ask a server of another process over HTTP as
they ask Prometheus. Time is that of the processor, so that nothing else on the machine counts; what writes to
a real API server cost, `benchmarks.cluster` and `benchmarks.delivery` tell.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep, median
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.rollouts.metric_checks import MetricChecks
from controller.rollouts.metric_servers import AllowedServers, WebhookCalls
from controller.rollouts.rollout_reconciler import FlagRolloutReconciler
from controller.rollouts.stage import ROLLOUTS
from controller.runtime.hosts import Hosts
from controller.runtime.http_client import HttpClient
from controller.runtime.limits import Places
from tests.worlds.stages import RecordingCluster, take_turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from controller.runtime.loop import Reconciler

MANY, FLAGS, INTERVAL, INTERVALS, AT_ONCE = 500, 20, 10.0, 12, 64
_ANSWER = json.dumps(
    {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "0.001"]}]}}
).encode()


def main() -> None:
    """From the first object to two minutes of checks."""
    with metric_server() as address:
        row = asyncio.run(measure(address))
    keep(f"{MANY} FlagRollouts, a metric each {INTERVAL:g} s", [row])


async def measure(address: str) -> dict[str, Any]:
    """Processor time of a check, and of all of an interval."""
    before = resident()
    world = Rollouts(address)
    try:
        began = time.process_time()
        world.commit("off")
        world.begin()
        await world.settle()
        world.commit("on")
        await world.settle()
        begun = time.process_time() - began
        assert world.phases() == {"Progressing"}
        spent = [await world.interval() for _ in range(INTERVALS)]
    finally:
        await world.client.close()
    return {
        "s to the first step, of all": begun,
        "ms a check": median(spent) / MANY * 1e3,
        "part of a processor": median(spent) / INTERVAL,
        "part at most": max(spent) / INTERVAL,
        "KB each": (resident() - before) / MANY,
    }


class Rollouts:
    """Many flag sets, each with a rollout."""

    def __init__(self, address: str) -> None:
        self.cluster = RecordingCluster([ROLLOUTS, CONFIGURATIONS])
        self.client = HttpClient(Hosts(denied=(), kind="rollout", local=True), Places(128, 128))
        servers = AllowedServers(self.client, _no_secret, allow_local=True)
        checks = MetricChecks(self.cluster.objects, servers, lambda *_: None)
        self.reconcilers: dict[str, Reconciler] = {
            "FlagRollout": FlagRolloutReconciler(
                self.cluster.objects, lambda _: self.cluster, checks, WebhookCalls(servers)
            ),
            "FeatureFlagConfiguration": ConfigurationReconciler(self.cluster.objects, ClaimIndex()),
        }
        self.now = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
        self.address = address

    def put(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """Write an object as a user does."""
        group = "core.openfeature.dev" if kind == "FeatureFlagConfiguration" else "flagstaff.dev"
        body = {"apiVersion": f"{group}/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.cluster.put(body)

    def commit(self, variant: str) -> None:
        """A change of all flags of all sets."""
        flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": variant}
        document = {"flags": {f"flag-{number}": flag for number in range(FLAGS)}}
        for number in range(MANY):
            self.put("FeatureFlagConfiguration", f"set-{number}", {"flagSpec": document})

    def begin(self) -> None:
        """A rollout for each set."""
        provider = {"type": "prometheus", "address": self.address}
        self.put("MetricTemplate", "errors", {"provider": provider, "query": "up"})
        metric = {"name": "errors", "templateRef": {"name": "errors"}, "thresholdRange": {"max": 0.01}}
        for number in range(MANY):
            spec = {
                "flagSetRef": {"name": f"set-{number}"},
                "flags": ["flag-*"],
                "steps": [{"share": 10, "minDuration": "1h"}],
                "analysis": {"interval": f"{INTERVAL:g}s", "metrics": [metric]},
            }
            self.put("FlagRollout", f"set-{number}", spec)

    def phases(self) -> set[str]:
        """Of all rollouts."""
        return {str(found.status.get("phase")) for found in self.cluster.objects.of_kind("FlagRollout")}

    async def settle(self) -> None:
        """Reconcile everything until nothing is written any more."""
        while True:
            self.cluster.take_writes()
            for kind in self.reconcilers:
                await self.turn(kind)
            if not self.cluster.take_writes():
                return

    async def interval(self) -> float:
        """Seconds of the processor for the checks of one interval."""
        self.now += timedelta(seconds=INTERVAL)
        began = time.process_time()
        await self.turn("FlagRollout")
        spent = time.process_time() - began
        assert len(self.cluster.take_writes()) == MANY
        return spent

    async def turn(self, kind: str) -> None:
        """Reconcile all objects of a kind, and write what is new of them."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with places:
                resource = self.cluster.the(kind, name)
                turn = await take_turn(self.reconcilers[kind], resource, self.now)
                if turn.status_written:
                    await self.cluster.write_status(resource, turn.settled.status)

        await asyncio.gather(*(one(name) for name in self.cluster.names(kind)))


async def _no_secret(_namespace: str, _name: str) -> None:
    return None


def resident() -> float:
    """What this process has in memory, in KB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _serve(port: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    port.send(server.server_port)
    server.serve_forever()


@contextmanager
def metric_server() -> Iterator[str]:
    """The address of a server that knows one value."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
