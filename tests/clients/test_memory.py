"""However much peers send without an end, the evaluator's memory stays within what a sidecar has, and a client
beside them is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from evaluator.http.h2.frames import DATA, END_HEADERS, HEADERS, PREFACE, frame, settings_frame
from evaluator.http.h2.hpack import encode_block
from tests.clients.evaluator import evaluator
from tests.clients.test_evaluator import ready
from tests.clients.up import banner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeAlias

    Attack: TypeAlias = Callable[[int, str], Awaitable[None]]

MOST_MEGABYTES: Final = 128
PATIENCE: Final = 20.0
PATHS: Final = {"ofrep": "/ofrep/v1/evaluate/flags", "management": "/healthz"}
"""Of each port, one that is known: others are refused before their body comes."""
FIELDS = [(f"x-{number}", "v" * 220) for number in range(60)]
GREETING = PREFACE + settings_frame({})
PIECE = bytes(16_000)
ASK = b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n"


@contextlib.asynccontextmanager
async def line(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that may be refused at any moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            yield reader, writer
    finally:
        writer.transport.abort()


def head(path: str) -> list[tuple[str, str]]:
    return [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a")]


async def bodies(port: int, path: str) -> None:
    """Bodies without an end on many streams of one connection: 3.6 MB, if all is taken."""
    async with line(port) as (reader, writer):
        writer.write(GREETING)
        for stream in range(1, 121, 2):
            writer.write(frame(HEADERS, END_HEADERS, stream, encode_block(head(path))))
            writer.write(frame(DATA, 0, stream, PIECE) * 3 + frame(DATA, 0, stream, PIECE[:12_000]))
            await writer.drain()
        await reader.read(1)
        await asyncio.sleep(1.0)


async def heads(port: int, path: str) -> None:
    """Header blocks of 15 KB whose requests never end: 3.7 MB on one connection, if all is taken."""
    async with line(port) as (reader, writer):
        writer.write(GREETING)
        block = encode_block([*head(path), *FIELDS])
        for stream in range(1, 501, 2):
            writer.write(frame(HEADERS, END_HEADERS, stream, block))
            await writer.drain()
        await reader.read(1)
        await asyncio.sleep(1.0)


async def uploads(port: int, path: str) -> None:
    """Nearly all of a body, over HTTP/1.1."""
    async with line(port) as (reader, writer):
        asked = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n\r\n"
        writer.write(asked.encode() + bytes(59_999))
        await writer.drain()
        await reader.read(1)


async def attacked(attack: Attack, peers: int, port: int, path: str) -> int:
    """How often a client beside `peers` attackers was answered."""
    answers, over = 0, asyncio.Event()

    async def ask() -> None:
        nonlocal answers
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not over.is_set():
            writer.write(ASK)
            async with asyncio.timeout(PATIENCE):
                assert b"HTTP/1.1" in await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"\n")
            answers += 1
            await asyncio.sleep(0.01)
        writer.close()

    asking = asyncio.create_task(ask())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(attack(port, path) for _ in range(peers)), return_exceptions=True)
    over.set()
    await asking
    return answers


def peak_megabytes(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.parametrize("port", ["ofrep", "management"])
@pytest.mark.parametrize(("attack", "peers"), [(bodies, 100), (heads, 25), (uploads, 450)])
async def test_memory_is_bounded_and_others_are_answered(
    tmp_path: Path, attack: Attack, peers: int, port: str
) -> None:
    (tmp_path / "flags.json").write_text(banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        ports = await asyncio.to_thread(ready, running)
        assert await attacked(attack, peers, ports[port], PATHS[port]) > 0
        assert peak_megabytes(running.process.pid) < MOST_MEGABYTES
