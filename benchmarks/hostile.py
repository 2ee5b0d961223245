"""(g) What a slow or hostile peer costs the others: the latency of well-behaved calls with it and without.

    python -m benchmarks.hostile

Well-behaved are RATE gRPC calls a second over 8 connections (h2load). Beside them, on the same CPU as h2load,
is a process that misbehaves in one way for as long as they are measured. The aims: calls whose p99 stays below
50 ms, at most 128 MB, and an event loop that nobody holds for 50 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.loads import CLIENT_CPU, GRPC, grpc_body, h2load, need
from benchmarks.observed import Observed
from benchmarks.results import keep, median
from benchmarks.servers import flagd, flagd_binary, ours
from evaluator.http.h2 import frames
from evaluator.http.h2.frames import END_HEADERS, frame
from evaluator.http.h2.hpack import encode_block
from tests.clients.attacks import GREETING, bodies, heads, line, uploads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from benchmarks.servers import Server

ROUNDS, RATE, SECONDS = 3, 2_000, 1
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


def resets(count: int) -> bytes:
    """Streams that are reset as soon as they are opened."""
    block = encode_block(
        [(":method", "POST"), (":scheme", "http"), (":path", CALL), (":authority", "a"), *GRPC.items()]
    )
    return b"".join(
        frame(frames.HEADERS, END_HEADERS, stream, block) + frame(frames.RST_STREAM, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 2 * count, 2)
    )  # fmt: skip


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


async def asks_to_explain(port: int) -> None:
    """With a context of 9,000 values, as fast as it is answered."""
    text = b'{"flagKey":"targeting","context":{"l":[' + b"[]," * 9_000 + b"1]}}"
    await _again(port, b"POST /explain HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(text) + text)


async def scrapes(port: int) -> None:
    """Asks for the metrics as fast as it gets them."""
    await _again(port, b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")


async def _again(port: int, request: bytes) -> None:
    async with line(port) as (reader, writer):
        while not writer.transport.is_closing():
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if b"chunked" not in head:
                raise ConnectionError(f"refused: {head!r}")
            await reader.readuntil(b"\r\n0\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Attack:
    """What a peer does on each of its connections, again and again."""

    act: Callable[[int], Awaitable[None]]
    connections: int
    management: bool = False
    """On the management port, and not where the calls are."""


def without_end(
    act: Callable[[int, str], Awaitable[None]], path: str = CALL
) -> Callable[[int], Awaitable[None]]:
    """An attack of the tests on one path."""
    return partial(_on, act, path)


def _on(act: Callable[[int, str], Awaitable[None]], path: str, port: int) -> Awaitable[None]:
    return act(port, path)


ATTACKS = {
    "asks for much and reads nothing": Attack(reads_nothing, 20),
    "sends a byte at a time": Attack(drips, 200),
    "resets streams at once": Attack(resets_streams, 2),
    "sends noise": Attack(makes_noise, 2),
    "asks for all flags without a pause": Attack(wants_all, 1),
    "sends contexts of 1 MB": Attack(sends_contexts, 2),
    "sends contexts of 15 kB, 50 at a time": Attack(sends_many_contexts, 2),
    "sends bodies without an end": Attack(without_end(bodies), 100),
    "sends heads of 15 kB without an end": Attack(without_end(heads), 25),
    "sends nearly all of 450 bodies": Attack(without_end(uploads), 450),
    "sends bodies without an end to an unknown path": Attack(without_end(bodies, "/nowhere"), 100),
    "asks to explain without a pause": Attack(asks_to_explain, 4, management=True),
    "scrapes without a pause": Attack(scrapes, 4, management=True),
    "sends bodies without an end to the management port": Attack(
        without_end(bodies, "/healthz"), 100, management=True
    ),
}


async def misbehave(name: str, port: int) -> None:
    """Until killed; whoever is thrown out comes back."""
    attack = ATTACKS[name]

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await attack.act(port)
            await asyncio.sleep(0.01)

    peers = [asyncio.create_task(again()) for _ in range(attack.connections)]
    await asyncio.sleep(0.3)
    print("begun", flush=True)
    await asyncio.gather(*peers)


@contextlib.contextmanager
def beside(server: Server, name: str | None) -> Iterator[None]:
    """The attack of that name, if any, from when it has begun until the block's end."""
    if name is None:
        yield
        return
    origin = server.management if ATTACKS[name].management else server.grpc
    words = [sys.executable, "-m", "benchmarks.hostile", name, origin.rpartition(":")[2]]
    peer = subprocess.Popen(["taskset", "-c", CLIENT_CPU, "nice", *words], stdout=subprocess.PIPE)
    try:
        assert peer.stdout is not None
        peer.stdout.readline()
        yield
    finally:
        peer.kill()
        peer.wait(20)


def measure(server: Server, scratch: Path, name: str | None, *, is_ours: bool) -> dict[str, Any]:
    """The figures of one attack."""
    observed = Observed(server.pid, server.management if is_ours else "")
    with beside(server, name):
        body = grpc_body("targeting")
        _, p50, p99 = h2load(f"{server.grpc}{CALL}", body, GRPC, scratch, rate=RATE, seconds=SECONDS)
    return {"p50 us": p50, "p99 us": p99, **observed.figures()}


def rounds(start: Callable[[], AbstractContextManager[Server]], *, is_ours: bool) -> list[dict[str, Any]]:
    """A row for each attack, and one for none of them."""
    found: dict[str | None, list[dict[str, Any]]] = {name: [] for name in (None, *ATTACKS)}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(ROUNDS):
            with start() as server:
                for name, figures in found.items():
                    figures.append(measure(server, Path(scratch), name, is_ours=is_ours))
    at_rest = median([each["p99 us"] for each in found[None]])
    return [row(name, figures, at_rest) for name, figures in found.items()]


def row(name: str | None, figures: list[dict[str, Any]], at_rest: float) -> dict[str, Any]:
    """Medians, but the worst of memory and lag: those are bounds."""
    p99 = median([each["p99 us"] for each in figures])
    lags = [each["loop lag below ms"] for each in figures if each["loop lag below ms"] is not None]
    return {
        "beside": name or "nobody",
        "p50 us": median([each["p50 us"] for each in figures]),
        "p99 us": p99,
        "p99 to that at rest": round(p99 / at_rest, 2),
        "peak MB": max(each["peak MB"] for each in figures),
        "loop lag below ms": max(lags, default=None),
        "CPU s": median([each["CPU s"] for each in figures]),
    }


def main() -> None:
    """Each attack in turn, beside nobody; on ours, and on flagd where there is one."""
    need("h2load", "taskset")
    calls = f"{RATE:,} gRPC calls a second beside a hostile peer"
    keep(calls, rounds(ours, is_ours=True))
    if (binary := flagd_binary()) is not None:
        keep(f"{calls}, flagd", rounds(partial(flagd, binary), is_ours=False))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(misbehave(sys.argv[1], int(sys.argv[2])))
    else:
        main()
