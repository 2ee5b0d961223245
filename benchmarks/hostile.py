"""(g) What a slow or hostile peer costs the others: the latency of well-behaved calls with it and without.

    python -m benchmarks.hostile

Well-behaved are RATE gRPC calls a second over 8 connections (h2load). Beside them, on the same port and the
same CPU as h2load, is a process that misbehaves in one way for as long as they are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.loads import CLIENT_CPU, GRPC, cpu_seconds, grpc_body, h2load, need
from benchmarks.results import keep, median
from benchmarks.servers import ours
from evaluator.http.h2 import frames
from evaluator.http.h2.frames import END_HEADERS, PREFACE, frame, settings_frame
from evaluator.http.h2.hpack import encode_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from benchmarks.servers import Server

ROUNDS, RATE = 3, 2_000
CALL = "/flagd.evaluation.v1.Service/ResolveString"
BULK = (
    b"POST /flagd.evaluation.v1.Service/ResolveAll HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    b"content-length: 2\r\n\r\n{}"
)
LARGE = (
    b"POST /flagd.evaluation.v1.Service/ResolveString HTTP/1.1\r\nhost: a\r\ncontent-type: "
    b"application/json\r\n"
    b"content-length: %d\r\n\r\n"
)
USER = b'"%s",' % (b"x" * 96)
HEAD = b"POST / HTTP/1.1\r\nhost: a\r\nx: "
GREETING = PREFACE + settings_frame({})


def resets(count: int) -> bytes:
    """Streams that are reset as soon as they are opened."""
    block = encode_block(
        [(":method", "POST"), (":scheme", "http"), (":path", CALL), (":authority", "a"), *GRPC.items()]
    )
    return b"".join(
        frame(frames.HEADERS, END_HEADERS, stream, block) + frame(frames.RST_STREAM, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 2 * count, 2)
    )  # fmt: skip


@contextlib.asynccontextmanager
async def line(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that may end at any time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(OSError):
        yield reader, writer
    writer.transport.abort()


async def answers(reader: asyncio.StreamReader, count: int) -> None:
    """Read as many."""
    for _ in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))


async def reads_nothing(port: int) -> None:
    """Asks for all flags again and again."""
    async with line(port) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined] # of ReadTransport
        while not writer.transport.is_closing():
            writer.write(BULK * 100)
            await asyncio.wait_for(writer.drain(), 5)


async def drips(port: int) -> None:
    """A head that goes on and on."""
    async with line(port) as (_, writer):
        writer.write(HEAD)
        while not writer.transport.is_closing():
            writer.write(b"y")
            await asyncio.sleep(0.1)


async def resets_streams(port: int) -> None:
    """CVE-2023-44487."""
    async with line(port) as (reader, writer):
        writer.write(GREETING + resets(2_000))
        await asyncio.wait_for(reader.read(), 5)


async def makes_noise(port: int) -> None:
    """Bytes that are no protocol."""
    async with line(port) as (reader, writer):
        writer.write(GREETING + random.randbytes(50_000))
        await asyncio.wait_for(reader.read(), 5)


async def wants_all(port: int) -> None:
    """Asks for all flags as fast as it gets them, 50 at a time."""
    async with line(port) as (reader, writer):
        while not writer.transport.is_closing():
            writer.write(BULK * 50)
            await answers(reader, 50)


async def sends_contexts(port: int) -> None:
    """A megabyte each: as many values as are read, then too many."""
    texts = [
        b'{"flagKey":"targeting","context":{"l":[' + one + b"1]}}" for one in (USER * 9_000, b"[]," * 300_000)
    ]
    async with line(port) as (reader, writer):
        while not writer.transport.is_closing():
            for text in texts:
                writer.write(LARGE % len(text) + text)
                await answers(reader, 1)


async def sends_many_contexts(port: int) -> None:
    """15 kB each, 50 at a time."""
    text = b'{"flagKey":"targeting","context":{"l":[' + b"[]," * 5_000 + b"1]}}"
    async with line(port) as (reader, writer):
        while not writer.transport.is_closing():
            writer.write((LARGE % len(text) + text) * 50)
            await answers(reader, 50)


PEERS: dict[str, tuple[Callable[[int], Awaitable[None]], int]] = {
    "asks for much and reads nothing": (reads_nothing, 20),
    "sends a byte at a time": (drips, 200),
    "resets streams at once": (resets_streams, 2),
    "sends noise": (makes_noise, 2),
    "asks for all flags without a pause": (wants_all, 1),
    "sends contexts of 1 MB": (sends_contexts, 2),
    "sends contexts of 15 kB, 50 at a time": (sends_many_contexts, 2),
}
"""What it does, and on how many connections."""


async def misbehave(name: str, port: int) -> None:
    """Until killed; whoever is thrown out comes back."""
    act, connections = PEERS[name]

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await act(port)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(again() for _ in range(connections)))


def measure(server: Server, scratch: Path, name: str | None) -> tuple[float, float, float]:
    """(p50 us, p99 us, server's CPU seconds)."""
    port = server.grpc.rpartition(":")[2]
    peer = None
    if name is not None:
        words = [sys.executable, "-m", "benchmarks.hostile", name, port]
        peer = subprocess.Popen(["taskset", "-c", CLIENT_CPU, "nice", *words])
    before = cpu_seconds(server.pid)
    _, p50, p99 = h2load(f"{server.grpc}{CALL}", grpc_body("targeting"), GRPC, scratch, rate=RATE)
    spent = cpu_seconds(server.pid) - before
    if peer is not None:
        peer.kill()
        peer.wait(20)
    return p50, p99, spent


def main() -> None:
    """Each kind in turn, beside nobody."""
    need("h2load", "taskset")
    kinds = (None, *PEERS)
    found: dict[str | None, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(ROUNDS):
            with ours() as server:
                for kind in kinds:
                    found[kind].append(measure(server, Path(scratch), kind))
    rows = [
        {
            "beside": kind or "nobody",
            "p50 us": median([one[0] for one in found[kind]]),
            "p99 us": median([one[1] for one in found[kind]]),
            "server CPU s": median([one[2] for one in found[kind]]),
        }
        for kind in kinds
    ]
    keep(f"{RATE:,} gRPC calls a second beside a hostile peer", rows)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(misbehave(sys.argv[1], int(sys.argv[2])))
    else:
        main()
