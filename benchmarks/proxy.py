"""(j) A FeatureFlagConfiguration's write until the last of 1,000 and of 10,000 streams has it, beside a real
flagd-proxy where there is one.

    python -m benchmarks.proxy [STREAMS …]

Everything is real: etcd, kube-apiserver, the proxy as its service account, and a connection for each stream,
as each pod has one. flagd-proxy is taken from FLAGD_PROXY_BINARY or PATH and reads a FeatureFlag of the same
content; without it, its rows are missing and the output says so. Streams, control plane and proxy share the
machine's processors, so the figures are of a cluster that is busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvloop
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from benchmarks.callers import HEAD
from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median, percentile
from controller.kube.client import Cluster
from evaluator.http import h2_frames
from evaluator.http.hpack import encode_block
from tests.cluster.assets import PLANE, find
from tests.cluster.plane import Plane, free_ports, run_plane
from tests.cluster.plugin import install
from tests.cluster.proxies import proxy
from tests.go import build

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS, WRITES, BURST, FLAGS = (1_000, 10_000), 20, 30, 20
PATIENCE = 60.0
PAGE = os.sysconf("SC_PAGE_SIZE")
NAMESPACE, NAME = "bench", "flags"
_HEAD = (
    (":method", "POST"), (":scheme", "http"), (":path", "/flagd.sync.v1.FlagSyncService/SyncFlags"),
    (":authority", "proxy"), ("content-type", "application/grpc"), ("te", "trailers"),
)  # fmt: skip


class Audience:
    """All streams, and when each received what."""

    def __init__(self) -> None:
        self.latest: dict[Stream, tuple[int, float]] = {}
        self.wanted = -1
        self.ready = asyncio.Event()
        self.count = 0
        self.received = 0

    def record(self, stream: Stream, number: int) -> None:
        known = self.latest.get(stream)
        self.latest[stream] = number, time.perf_counter()
        if number == self.wanted and (known is None or known[0] != number):
            self.count += 1
            if self.count >= len(self.latest):
                self.ready.set()

    def want(self, number: int) -> None:
        self.wanted, self.count = number, sum(each[0] == number for each in self.latest.values())
        self.ready.clear()

    async def all_received(self) -> int:
        """How many never received what was wanted."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ready.wait(), PATIENCE)
        return sum(number != self.wanted for number, _ in self.latest.values())


class Stream(asyncio.Protocol):
    """One subscriber on a connection of its own: as much of HTTP/2 as it takes to read one stream, and no
    more.
    """

    def __init__(self, audience: Audience, selector: str) -> None:
        self.audience = audience
        self.selector = selector
        self.buffer = bytearray()
        self.message = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        request = sync_pb2.SyncFlagsRequest(selector=self.selector).SerializeToString()
        framed = b"\0" + len(request).to_bytes(4, "big") + request
        wide = h2_frames.frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30))
        self.transport.write(
            h2_frames.PREFACE
            + h2_frames.settings_frame({h2_frames.Setting.INITIAL_WINDOW_SIZE: 2**30})
            + wide
            + h2_frames.frame(h2_frames.HEADERS, h2_frames.END_HEADERS, 1, encode_block(_HEAD))
            + h2_frames.frame(h2_frames.DATA, h2_frames.END_STREAM, 1, framed)
        )

    def data_received(self, data: bytes) -> None:
        self.audience.received += len(data)
        self.buffer += data
        while len(self.buffer) >= h2_frames.HEAD_BYTES:
            word, flags, _ = HEAD.unpack_from(self.buffer)
            end = h2_frames.HEAD_BYTES + (word >> 8)
            if len(self.buffer) < end:
                return
            payload = bytes(self.buffer[h2_frames.HEAD_BYTES : end])
            del self.buffer[:end]
            self.take(word & 0xFF, flags, payload)

    def take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == h2_frames.DATA:
            self.message += payload
            while len(self.message) >= 5:
                end = 5 + int.from_bytes(self.message[1:5], "big")
                if len(self.message) < end:
                    return
                self.audience.record(self, number_in(bytes(self.message[5:end])))
                del self.message[:end]
        elif kind in {h2_frames.SETTINGS, h2_frames.PING} and not flags & h2_frames.ACK:
            self.transport.write(
                h2_frames.frame(kind, h2_frames.ACK, 0, payload if kind == h2_frames.PING else b"")
            )


def number_in(message: bytes) -> int:
    """Which write a message is of, without reading the rest: ten thousand readers share this processor."""
    at = message.index(b"number-") + 7
    return int(message[at : at + 9])


def document(number: int) -> dict[str, Any]:
    """FLAGS flags of about 500 bytes each; the first has the number of the write."""
    rule = {"if": [{"in": ["@example.com", {"var": "email"}]}, "on", "off"]}
    flag = {
        "state": "ENABLED",
        "variants": {"on": "x" * 150, "off": "y" * 150},
        "defaultVariant": "off",
        "targeting": rule,
    }
    first = {"state": "ENABLED", "variants": {"on": f"number-{number:09}"}, "defaultVariant": "on"}
    return {"flags": {"a": first, **{f"flag-{each:03}": flag for each in range(FLAGS)}}}


class Server:
    """A proxy under test."""

    def __init__(self, pid: int, port: int, kind: str) -> None:
        self.pid = pid
        self.port = port
        self.kind = kind

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE


@contextlib.contextmanager
def ours(plane: Plane, folder: Path) -> Iterator[Server]:
    with proxy(plane, folder, "--auth", "off") as process:
        yield Server(process.pid, process.sync, "FeatureFlagConfiguration")


@contextlib.contextmanager
def flagd_proxy(plane: Plane, folder: Path) -> Iterator[Server]:
    binary = theirs()
    assert binary is not None
    port, management = free_ports(2)
    with (folder / "flagd-proxy.log").open("ab") as log:
        process = subprocess.Popen(
            [binary, "start", "-p", str(port), "-m", str(management)], stdout=log, stderr=log,
            env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
        )  # fmt: skip
        try:
            while not ready(management):
                if process.poll() is not None:
                    raise SystemExit(f"flagd-proxy ended: {log.name}")
                time.sleep(0.1)
            yield Server(process.pid, port, "FeatureFlag")
        finally:
            process.terminate()
            process.wait(20)


def theirs() -> str | None:
    """A real flagd-proxy."""
    return os.environ.get("FLAGD_PROXY_BINARY") or shutil.which("flagd-proxy")


class Writer:
    """Writes the object again and again, as the controller does."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.number = 0
        self.cluster = cluster
        self.kind = kind

    async def write(self) -> float:
        """The next content; when it was sent."""
        self.number += 1
        body = {
            "apiVersion": "core.openfeature.dev/v1beta1",
            "kind": self.kind,
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {}},
            "spec": {"flagSpec": document(self.number)},
        }
        started = time.perf_counter()
        await self.cluster.apply(body, manager="bench")
        return started


async def connect(server: Server, audience: Audience, streams: int) -> list[asyncio.BaseTransport]:
    """All streams, a few hundred at a time."""
    loop, selector = asyncio.get_running_loop(), f"core.openfeature.dev/{NAMESPACE}/{NAME}"
    opened: list[asyncio.BaseTransport] = []
    for first in range(0, streams, 200):
        some = (
            loop.create_connection(partial(Stream, audience, selector), "127.0.0.1", server.port)
            for _ in range(first, min(first + 200, streams))
        )
        for transport, stream in await asyncio.gather(*some):
            opened.append(transport)
            audience.latest.setdefault(stream, (0, 0.0))
    return opened


async def measure(server: Server, cluster: Cluster, streams: int) -> dict[str, float]:
    """Everything about one proxy with `streams` streams."""
    audience, writer = Audience(), Writer(cluster, server.kind)
    await writer.write()
    idle, started = server.memory(), time.perf_counter()
    opened = await connect(server, audience, streams)
    audience.want(writer.number)
    if audience.count < streams:
        await audience.all_received()
    joined = time.perf_counter() - started
    memory, used, received = server.memory(), cpu_seconds(server.pid), audience.received
    firsts, lasts, p50s = [], [], []
    for _ in range(WRITES):
        audience.want(writer.number + 1)
        sent = await writer.write()
        await audience.all_received()
        waits = [at - sent for number, at in audience.latest.values() if number == audience.wanted]
        firsts.append(min(waits))
        lasts.append(max(waits))
        p50s.append(percentile(waits, 0.5))
        await asyncio.sleep(0.2)
    used, received = cpu_seconds(server.pid) - used, audience.received - received
    audience.want(writer.number + BURST)
    for _ in range(BURST):
        await writer.write()
    lost = await audience.all_received()
    for transport in opened:
        transport.close()
    return {
        "all connected ms": joined * 1000,
        "first ms": median(firsts) * 1000,
        "median stream ms": median(p50s) * 1000,
        "last ms": median(lasts) * 1000,
        "last ms, worst of all writes": max(lasts) * 1000,
        "CPU us/stream and write": used / WRITES / streams * 1e6,
        "KiB/stream resident": (memory - idle) / streams / 1024,
        "bytes/stream and write": received / WRITES / streams,
        "streams without the newest value after a burst": float(lost),
    }


def ready(port: int) -> bool:
    """Whether /readyz says 200."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def rows(plane: Plane, folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    cluster = await Cluster.connect(str(plane.kubeconfig))
    found: list[dict[str, Any]] = []
    proxies = [("flagstaff", ours)]
    if theirs():
        proxies.append(("flagd-proxy", flagd_proxy))
    try:
        for name, start in proxies:
            for count in counts:
                with start(plane, folder) as server:
                    figures = await measure(server, cluster, count)
                found.append({"proxy": name, "streams": count} | figures)
    finally:
        await cluster.close()
    return found


def main() -> None:
    """Measure and keep."""
    counts = [int(each) for each in sys.argv[1:]] or list(STREAMS)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if theirs() is None:
        print(
            "no flagd-proxy: neither FLAGD_PROXY_BINARY nor PATH names one, so there is "
            "nothing to compare with"
        )
    assets = find() or build(PLANE)
    size = len(json.dumps(document(0)))
    print(f"a set of {FLAGS + 1} flags, {size} bytes; {WRITES} writes, then {BURST} at once")
    with tempfile.TemporaryDirectory() as folder, run_plane(assets, Path(folder) / "plane") as plane:
        install(plane)
        plane.kubectl("create", "namespace", NAMESPACE)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            keep("proxy", runner.run(rows(plane, Path(folder), counts)))


if __name__ == "__main__":
    main()
