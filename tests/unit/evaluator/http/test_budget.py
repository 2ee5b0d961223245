"""What the connections of a port make us keep together is bounded; who holds most is refused, nobody else."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from evaluator.http import h2_frames
from evaluator.http.h2_frames import END_HEADERS, Http2ErrorCode
from evaluator.http.hpack import encode_block
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.limits import Limits
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.serving import Line, exchange, run_listener
from tests.unit.evaluator.http.test_http2 import ask, call
from tests.waiting import until

LAST = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
SMALL = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n12345"
BODY = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 900000\r\n\r\n" + bytes(100_000)
KNOWN_HEAD = (*wire.HEAD[:2], (":path", "/"), (":authority", "h"))
KNOWN = encode_block(KNOWN_HEAD)
CODED = (
    wire.GREETING
    + wire.headers_frame(1, KNOWN)
    + b"".join(wire.data_frame(1, bytes(10_000), 0) for _ in range(10))
)
FIELDS = [(f"x-{number}", "v" * 200) for number in range(250)]
HEAD = b"GET / HTTP/1.1\r\nhost: h\r\n" + "".join(f"{n}: {v}\r\n" for n, v in FIELDS).encode()
CODED_HEAD = wire.GREETING + b"".join(
    wire.headers_frame(number, encode_block([*KNOWN_HEAD, *FIELDS[:60]]), END_HEADERS) for number in (1, 3, 5)
)
CALM = h2_frames.goaway_frame(0, Http2ErrorCode.ENHANCE_YOUR_CALM)[13:17]


@pytest.mark.parametrize(
    ("large", "refusal"),
    [(BODY, b" 429 "), (CODED, CALM), (HEAD, b" 429 "), (CODED_HEAD, CALM)],
    ids=["body, HTTP/1.1", "body, HTTP/2", "head, HTTP/1.1", "head, HTTP/2"],
)
async def test_the_largest_is_refused_and_others_do_not_notice(large: bytes, refusal: bytes) -> None:
    async with run_listener(limits=Limits(buffered_bytes=60_000)) as (listener, port):
        reader, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(SMALL)
        await until(lambda: listener.held_bytes)
        held = listener.held_bytes
        with suppress(ConnectionResetError):
            assert refusal in await exchange(port, large)
        assert listener.refused_connections == 1
        assert listener.held_bytes == held
        other.write(b"67890")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        other.close()


async def test_what_was_answered_counts_no_more() -> None:
    async with run_listener(limits=Limits(buffered_bytes=150_000)) as (listener, port):
        for _ in range(3):
            assert b"200 OK" in await exchange(port, BODY.replace(b"900000", b"100000") + LAST)
            assert await exchange(port, wire.GREETING + call(1, "/t.T/Echo", bytes(10_000)) + goodbye())
        await until(lambda: not listener.connections)
        assert (listener.refused_connections, listener.held_bytes) == (0, 0)


def goodbye() -> bytes:
    return h2_frames.goaway_frame(0, Http2ErrorCode.NO_ERROR)


async def test_one_address_may_not_take_all_connections() -> None:
    async with run_listener(limits=Limits(connections_per_host=2)) as (listener, port):
        first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: listener.connections == 2)
        with suppress(ConnectionResetError):
            assert await exchange(port, b"") == b""
        assert listener.refused_connections == 1
        first[0][1].close()
        await until(lambda: listener.connections == 1)
        assert b"200 OK" in await exchange(port, LAST)
        first[1][1].close()


def test_answers_that_nobody_reads_count_until_they_are_read() -> None:
    line = Line(Http2Peer, Limits(write_buffer_bytes=50_000, buffered_bytes=500_000))
    line.feed(wire.GREETING)
    line.feed(ask(1, "/large"), ask(3, "/large"), ask(5, "/large"))
    # A client that reads at once is not counted, however large the answer.
    assert line.port.held < 5_000
    line.wait(2)
    assert line.port.held > 100_000
    window = h2_frames.frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30))
    wide = [
        h2_frames.frame(h2_frames.WINDOW_UPDATE, 0, number, h2_frames.UINT32.pack(2**20))
        for number in (1, 3, 5)
    ]
    line.feed(window, *wide)
    line.feed(*wide)
    assert line.port.held == 0


def test_requests_that_wait_behind_an_unread_answer_are_bounded() -> None:
    line = Line(Http2Peer, Limits(write_buffer_bytes=50_000, buffered_bytes=250_000))
    line.feed(wire.GREETING)
    line.feed(ask(1, "/large"), ask(3, "/large"))
    calls = [call(number, "/t.T/Echo", bytes(16_000)) for number in range(5, 45, 2)]
    assert CALM in line.feed(*calls)
    assert (line.port.held, line.port.refused, line.over()) == (0, 1, True)
