"""Peers that send without an end, to fill the memory of a server that keeps it: for tests and benchmarks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.http.h2_frames import DATA, END_HEADERS, HEADERS, PREFACE, frame, settings_frame
from evaluator.http.hpack import encode_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import TypeAlias

if TYPE_CHECKING:
    Attack: TypeAlias = Callable[[int, str], Awaitable[None]]

FIELDS = [(f"x-{number}", "v" * 220) for number in range(60)]
GREETING = PREFACE + settings_frame({})
PIECE = bytes(16_000)


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


def peak_megabytes(pid: int) -> float:
    """The most resident memory that the process had since it began, or since `forget_peak`."""
    return _megabytes(pid, "VmHWM")


def resident_megabytes(pid: int) -> float:
    """The memory of the process that is resident now."""
    return _megabytes(pid, "VmRSS")


def forget_peak(pid: int) -> None:
    """Begin the peak anew, at what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _megabytes(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
