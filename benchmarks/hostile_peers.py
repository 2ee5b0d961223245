"""Peers that misbehave, each in one way, in a process of their own: what stands beside the calls of
`benchmarks.hostile`.

    python -m benchmarks.hostile_peers ATTACK PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.loads import CLIENT_CPU, GRPC
from evaluator.http import h2_frames
from evaluator.http.h2_frames import END_HEADERS, frame
from evaluator.http.hpack import encode_block
from evaluator.wire import sync_pb2
from tests.clients.attacks import GREETING, bodies, head, heads, line, uploads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.servers import Server

CALL: Final = "/flagd.evaluation.v1.Service/ResolveString"
SYNC: Final = "/flagd.sync.v1.FlagSyncService/SyncFlags"
FETCH: Final = "/flagd.sync.v1.FlagSyncService/FetchAllFlags"
SELECTOR: Final = "shop/flags"
"""Of the one set that the proxy has."""


def grpc_frame(message: bytes) -> bytes:
    """As gRPC sends it."""
    return struct.pack(">BI", 0, len(message)) + message


ASKED: Final = grpc_frame(sync_pb2.SyncFlagsRequest(selector=SELECTOR).SerializeToString())
"""A subscriber's first message; FetchAllFlags' is the same."""
FETCH_AGAIN: Final = (
    f"POST {FETCH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc-web+proto\r\n"
    f"content-length: {len(ASKED)}\r\n\r\n"
).encode() + ASKED
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


def resets(count: int, path: str) -> bytes:
    """Streams that are reset as soon as they are opened."""
    block = encode_block([*head(path), *GRPC.items()])
    return b"".join(
        frame(h2_frames.HEADERS, END_HEADERS, stream, block)
        + frame(h2_frames.RST_STREAM, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 2 * count, 2)
    )  # fmt: skip


async def answers(reader: asyncio.StreamReader, count: int) -> None:
    """Read as many."""
    for _ in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))


async def reads_nothing(port: int, request: bytes = BULK) -> None:
    """Asks for all flags again and again."""
    async with line(port) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined] # of ReadTransport
        while not writer.transport.is_closing():
            writer.write(request * 100)
            await asyncio.wait_for(writer.drain(), 5)


async def drips(port: int) -> None:
    """A head that goes on and on."""
    async with line(port) as (_, writer):
        writer.write(HEAD)
        while not writer.transport.is_closing():
            writer.write(b"y")
            await asyncio.sleep(0.1)


async def resets_streams(port: int, path: str) -> None:
    """CVE-2023-44487."""
    async with line(port) as (reader, writer):
        writer.write(GREETING + resets(2_000, path))
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


async def fetches_all(port: int) -> None:
    """Asks the proxy for a set as fast as it gets it."""
    await _again(port, FETCH_AGAIN)


async def holds_streams(port: int) -> None:
    """Opens 100 streams of a set, and reads nothing."""
    async with line(port) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined] # of ReadTransport
        block = encode_block([*head(SYNC), *GRPC.items()])
        writer.write(GREETING)
        for stream in range(1, 201, 2):
            writer.write(frame(h2_frames.HEADERS, END_HEADERS, stream, block))
            writer.write(frame(h2_frames.DATA, h2_frames.END_STREAM, stream, ASKED))
        await asyncio.wait_for(writer.drain(), 5)
        await asyncio.sleep(1.0)


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


EVALUATOR: Final = {
    "asks for much and reads nothing": Attack(reads_nothing, 20),
    "sends a byte at a time": Attack(drips, 200),
    "resets streams at once": Attack(partial(resets_streams, path=CALL), 2),
    "sends noise": Attack(makes_noise, 2),
    "asks for all flags without a pause": Attack(wants_all, 1),
    "sends contexts of 1 MB": Attack(sends_contexts, 2),
    "sends contexts of 15 kB, 50 at a time": Attack(sends_many_contexts, 2),
    "sends bodies without an end": Attack(partial(bodies, path=CALL), 100),
    "sends heads of 15 kB without an end": Attack(partial(heads, path=CALL), 25),
    "sends nearly all of 450 bodies": Attack(partial(uploads, path=CALL), 450),
    "sends bodies without an end to an unknown path": Attack(partial(bodies, path="/nowhere"), 100),
    "asks to explain without a pause": Attack(asks_to_explain, 4, management=True),
    "scrapes without a pause": Attack(scrapes, 4, management=True),
    "sends bodies without an end to the management port": Attack(
        partial(bodies, path="/healthz"), 100, management=True
    ),
}
PROXY: Final = {
    "asks for sets and reads nothing": Attack(partial(reads_nothing, request=FETCH_AGAIN), 20),
    "opens 2,000 streams and reads nothing": Attack(holds_streams, 20),
    "fetches a set without a pause": Attack(fetches_all, 4),
    "resets streams of the proxy at once": Attack(partial(resets_streams, path=FETCH), 2),
    "sends the proxy bodies without an end": Attack(partial(bodies, path=FETCH), 100),
    "sends the proxy heads of 15 kB without an end": Attack(partial(heads, path=FETCH), 25),
    "sends the proxy nearly all of 450 bodies": Attack(partial(uploads, path=FETCH), 450),
    **{
        name: EVALUATOR[name]
        for name in (
            "sends a byte at a time",
            "sends noise",
            "sends bodies without an end to an unknown path",
            "scrapes without a pause",
            "sends bodies without an end to the management port",
        )
    },
}
"""Of its sync port, unless they say otherwise."""
ALL: Final = EVALUATOR | PROXY


async def misbehave(name: str, port: int) -> None:
    """Until killed; a client that is disconnected comes back."""
    attack = ALL[name]

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
    origin = server.management if ALL[name].management else server.grpc
    words = [sys.executable, "-m", "benchmarks.hostile_peers", name, origin.rpartition(":")[2]]
    peer = subprocess.Popen(["taskset", "-c", CLIENT_CPU, "nice", *words], stdout=subprocess.PIPE)
    try:
        assert peer.stdout is not None
        peer.stdout.readline()
        yield
    finally:
        peer.kill()
        peer.wait(20)


if __name__ == "__main__":
    asyncio.run(misbehave(sys.argv[1], int(sys.argv[2])))
