"""What a peer must not do, and what no bytes may do to us."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http.h2_connection import Http2Connection
from evaluator.http.h2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    ConnectionClosed,
    Event,
    HeadersReceived,
    Http2ErrorCode,
    Setting,
    StreamClosed,
    frame,
    reset_frame,
    settings_frame,
    window_frame,
)
from evaluator.http.h2_streams import MOST_EARLY
from evaluator.http.hpack import encode_block
from evaluator.http.limits import Limits
from tests.unit.evaluator.http.wire import (
    BLOCK,
    GREETING,
    HEAD,
    OK,
    STATUS,
    content,
    data_frame,
    errors,
    headers_frame,
    open_connection,
    take_frames,
    whole,
)

if TYPE_CHECKING:
    import random

OPEN = headers_frame(1)
ASKED = headers_frame(1, flags=END_HEADERS | END_STREAM)
HALF = headers_frame(1, flags=0)
LARGEST = 2**31 - 1
IDLE = Limits().resets_per_second + 1
"""Frames that ask for nothing, one more than may come at once."""
CALM = Http2ErrorCode.ENHANCE_YOUR_CALM
PROTOCOL = Http2ErrorCode.PROTOCOL_ERROR
SIZE = Http2ErrorCode.FRAME_SIZE_ERROR
FLOW = Http2ErrorCode.FLOW_CONTROL_ERROR
CLOSED = Http2ErrorCode.STREAM_CLOSED

CONNECTION_ERRORS = {
    "a frame longer than allowed": (frame(DATA, 0, 1, bytes(16_385)), SIZE),
    "DATA on stream 0": (data_frame(0), PROTOCOL),
    "DATA on an idle stream": (data_frame(1), PROTOCOL),
    "DATA on a stream of even id": (OPEN + data_frame(2), PROTOCOL),
    "DATA after the peer's reset": (OPEN + reset_frame(1, 8) + data_frame(1), CLOSED),
    "DATA with only a pad flag": (OPEN + frame(DATA, PADDED, 1), SIZE),
    "padding longer than DATA": (OPEN + frame(DATA, PADDED, 1, b"\x03ab"), PROTOCOL),
    "HEADERS on stream 0": (headers_frame(0), PROTOCOL),
    "HEADERS on an even stream": (headers_frame(2), PROTOCOL),
    "HEADERS on a lower stream": (headers_frame(5) + headers_frame(3), PROTOCOL),
    "HEADERS after the peer's reset": (OPEN + reset_frame(1, 8) + OPEN, CLOSED),
    "padding longer than HEADERS": (frame(HEADERS, PADDED | 4, 1, b"\x09ab"), PROTOCOL),
    "HEADERS too short for priority": (frame(HEADERS, WITH_PRIORITY | 4, 1, b"abcd"), SIZE),
    "HEADERS that is no HPACK": (headers_frame(1, b"\x80"), Http2ErrorCode.COMPRESSION_ERROR),
    "CONTINUATION of nothing": (frame(CONTINUATION, END_HEADERS, 1), PROTOCOL),
    "CONTINUATION of another stream": (HALF + frame(CONTINUATION, 4, 3), PROTOCOL),
    "DATA within a header block": (HALF + data_frame(1), PROTOCOL),
    "an unknown frame within a header block": (HALF + frame(99, 0, 1), PROTOCOL),
    "a header block without end": (HALF + frame(CONTINUATION, 0, 1, bytes(16_384)) * 70, CALM),
    "PRIORITY on stream 0": (frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL),
    "short PRIORITY on an idle stream": (frame(PRIORITY, 0, 1, bytes(4)), SIZE),
    "RST_STREAM on stream 0": (reset_frame(0, 0), PROTOCOL),
    "RST_STREAM on an idle stream": (reset_frame(1, 0), PROTOCOL),
    "RST_STREAM of 3 bytes": (OPEN + frame(RST_STREAM, 0, 1, bytes(3)), SIZE),
    "SETTINGS on a stream": (frame(SETTINGS, 0, 1), PROTOCOL),
    "SETTINGS of 5 bytes": (frame(SETTINGS, 0, 0, bytes(5)), SIZE),
    "SETTINGS ack with a payload": (frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    "ENABLE_PUSH of 2": (settings_frame({Setting.ENABLE_PUSH: 2}), PROTOCOL),
    "window setting too large": (settings_frame({Setting.INITIAL_WINDOW_SIZE: 2**31}), FLOW),
    "frame size too small": (settings_frame({Setting.MAX_FRAME_SIZE: 16_383}), PROTOCOL),
    "frame size too large": (settings_frame({Setting.MAX_FRAME_SIZE: 2**24}), PROTOCOL),
    "window setting that overflows a stream": (
        OPEN + window_frame(1, 1000) + settings_frame({Setting.INITIAL_WINDOW_SIZE: LARGEST}),
        FLOW,
    ),
    "PUSH_PROMISE": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL),
    "PING on a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL),
    "PING of 7 bytes": (frame(PING, 0, 0, bytes(7)), SIZE),
    "GOAWAY on a stream": (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    "GOAWAY of 7 bytes": (frame(GOAWAY, 0, 0, bytes(7)), SIZE),
    "WINDOW_UPDATE of 3 bytes": (frame(WINDOW_UPDATE, 0, 0, bytes(3)), SIZE),
    "WINDOW_UPDATE of 0": (window_frame(0, 0), PROTOCOL),
    "WINDOW_UPDATE on an idle stream": (window_frame(1, 1), PROTOCOL),
    "connection window overflow": (window_frame(0, LARGEST), FLOW),
    "resets in a flood": (b"".join(headers_frame(n) + reset_frame(n, 8) for n in range(1, 203, 2)), CALM),
    "malformed requests in a flood": (b"".join(headers_frame(n, b"\x82") for n in range(1, 203, 2)), CALM),
    "a header block of 257 fields": (headers_frame(1, b"\x84" * 257), CALM),
    "a header block that decodes to 64 KiB and more": (
        headers_frame(1, b"\x40\x01x\x7f\xa1\x1e" + bytes(4_000) + b"\xbe" * 16),
        CALM,
    ),
    "trailers of 257 fields": (OPEN + headers_frame(1, b"\x84" * 257, 5), CALM),
    "PING in a flood": (frame(PING, 0, 0, bytes(8)) * IDLE, CALM),
    "SETTINGS in a flood": (settings_frame({}) * IDLE, CALM),
    "PRIORITY in a flood": (frame(PRIORITY, 0, 3, bytes(5)) * IDLE, CALM),
    "unknown frames in a flood": (frame(99, 0, 0) * IDLE, CALM),
    "WINDOW_UPDATE in a flood": (window_frame(0, 1) * IDLE, CALM),
    "WINDOW_UPDATE of a stream in a flood": (OPEN + window_frame(1, 1) * IDLE, CALM),
    "PING answers in a flood": (frame(PING, ACK, 0, bytes(8)) * IDLE, CALM),
    "SETTINGS answers in a flood": (frame(SETTINGS, ACK, 0) * IDLE, CALM),
    "DATA of a byte in a flood": (OPEN + data_frame(1, b"x", flags=0) * IDLE, CALM),
    "frames of a stream that is refused in a flood": (
        OPEN + reset_frame(1, 8) + window_frame(1, 1) * IDLE,
        CALM,
    ),
    "empty DATA in a flood": (OPEN + data_frame(1, flags=0) * IDLE, CALM),
    "padding without DATA in a flood": (OPEN + frame(DATA, PADDED, 1, b"\x02ab") * IDLE, CALM),
    "empty CONTINUATION in a flood": (HALF + frame(CONTINUATION, 0, 1) * IDLE, CALM),
}

STREAM_ERRORS = {
    "DATA after the end": (ASKED + data_frame(1), CLOSED),
    "HEADERS after the end": (ASKED + ASKED, CLOSED),
    "trailers that do not end the stream": (OPEN + headers_frame(1, STATUS), PROTOCOL),
    "trailers with a pseudo-header": (OPEN + headers_frame(1, OK, 5), PROTOCOL),
    "PRIORITY on itself": (OPEN + frame(PRIORITY, 0, 1, b"\0\0\0\1\0"), PROTOCOL),
    "short PRIORITY": (OPEN + frame(PRIORITY, 0, 1, bytes(4)), SIZE),
    "WINDOW_UPDATE of 0": (OPEN + window_frame(1, 0), PROTOCOL),
    "window overflow": (OPEN + window_frame(1, LARGEST), FLOW),
}

FIELDS = {
    "no method": HEAD[1:],
    "no scheme": (HEAD[0], *HEAD[2:]),
    "no path": (*HEAD[:2], HEAD[3]),
    "an empty path": (*HEAD[:2], (":path", "")),
    "a path that is a word": (*HEAD[:2], (":path", "flags")),
    "an empty method": ((":method", ""), *HEAD[1:]),
    "two paths": (*HEAD, (":path", "/")),
    "two authorities": (*HEAD, (":authority", "host")),
    "an unknown pseudo-header": (*HEAD, (":protocol", "websocket")),
    "a response's pseudo-header": (*HEAD, (":status", "200")),
    "a pseudo-header after a field": (*HEAD[:3], ("x-a", "1"), HEAD[3]),
    "an upper-case name": (*HEAD, ("X-a", "1")),
    "an empty name": (*HEAD, ("", "1")),
    "a name with a space": (*HEAD, ("x a", "1")),
    "a name with a colon": (*HEAD, ("x:a", "1")),
    "a value with a line break": (*HEAD, ("x-a", "1\r\nx-b: 2")),
    "a value with a NUL": (*HEAD, ("x-a", "\0")),
    "a value with a space before it": (*HEAD, ("x-a", " 1")),
    "a value with a space after it": (*HEAD, ("x-a", "1\t")),
    "a path with a line break": (*HEAD[:2], (":path", "/\n")),
    "connection": (*HEAD, ("connection", "close")),
    "keep-alive": (*HEAD, ("keep-alive", "1")),
    "proxy-connection": (*HEAD, ("proxy-connection", "keep-alive")),
    "transfer-encoding": (*HEAD, ("transfer-encoding", "chunked")),
    "upgrade": (*HEAD, ("upgrade", "h2c")),
    "te other than trailers": (*HEAD, ("te", "gzip")),
    "a content length that is none": (*HEAD, ("content-length", "-1")),
    "a content length of other digits": (*HEAD, ("content-length", "\xb2")),
    "two content lengths": (*HEAD, ("content-length", "5"), ("content-length", "6")),
    "a content length too large": (*HEAD, ("content-length", "6")),
    "a content length too small": (*HEAD, ("content-length", "4")),
}


@pytest.mark.parametrize(("wire", "error"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS.keys())
def test_a_breach_ends_the_connection(wire: bytes, error: Http2ErrorCode) -> None:
    connection = open_connection()
    assert connection.receive(wire)[-1] == ConnectionClosed(error)
    assert [(kind, code) for kind, _, code in errors(connection)][-1] == ("GOAWAY", error)
    assert connection.receive(whole(1001)) == []
    connection.goaway()
    connection.ping()
    assert (connection.take_output(), connection.draining) == (b"", True)


@pytest.mark.parametrize(("wire", "error"), STREAM_ERRORS.values(), ids=STREAM_ERRORS.keys())
def test_a_breach_ends_its_stream_only(wire: bytes, error: Http2ErrorCode) -> None:
    connection = open_connection(Limits(header_bytes=1000))
    assert StreamClosed(1, error) in connection.receive(wire)
    assert errors(connection) == [("RST_STREAM", 1, error)]
    assert len(connection.receive(whole(3))) == 1


@pytest.mark.parametrize("headers", FIELDS.values(), ids=FIELDS.keys())
def test_a_malformed_request_ends_its_stream_only(headers: tuple[tuple[str, str], ...]) -> None:
    connection = open_connection()
    connection.receive(headers_frame(1, encode_block(headers)) + data_frame(1, b"hello"))
    assert errors(connection) == [("RST_STREAM", 1, PROTOCOL)]
    assert len(connection.receive(whole(3))) == 1


def test_a_priority_on_itself_in_headers_ends_its_stream() -> None:
    connection = open_connection()
    block = b"\0\0\0\1\0" + BLOCK
    assert connection.receive(frame(HEADERS, WITH_PRIORITY | END_HEADERS, 1, block)) == []
    assert errors(connection) == [("RST_STREAM", 1, PROTOCOL)]


@pytest.mark.parametrize(
    "wire",
    [b"GET / HTTP/1.1\r\n\r\n", b"X", PREFACE[:-1] + b"X", PREFACE + whole(1)],
    ids=["HTTP/1.1", "a byte", "almost", "no SETTINGS"],
)
def test_a_connection_begins_with_its_preface(wire: bytes) -> None:
    connection = Http2Connection(Limits())
    assert connection.receive(wire) == [ConnectionClosed(PROTOCOL)]
    assert errors(connection) == [("GOAWAY", 0, PROTOCOL)]


def test_data_on_a_finished_stream_ends_the_connection() -> None:
    connection = open_connection()
    connection.receive(whole(1))
    connection.send_response(1, OK, b"answer", STATUS)
    assert connection.receive(data_frame(1)) == [ConnectionClosed(CLOSED)]


def test_a_discarded_body_over_the_window_ends_its_stream() -> None:
    connection = open_connection(Limits(body_bytes=10))
    events = connection.receive(OPEN + data_frame(1, bytes(16_384), 0) * 17)
    assert events[1:] == [StreamClosed(1, FLOW)]
    assert errors(connection) == [("RST_STREAM", 1, FLOW)]


def test_a_second_begins_all_counts_anew() -> None:
    connection = open_connection()
    for _ in range(3):
        connection.tick()
        assert connection.receive(frame(PING, 0, 0, bytes(8)) * 100) == []


def test_a_client_that_works_may_ping_as_it_likes() -> None:
    connection = open_connection()
    for stream_id in range(1, 401, 2):
        events = connection.receive(whole(stream_id) + frame(PING, 0, 0, bytes(8)))
        assert len(events) == 1
        connection.send_response(stream_id, OK, b"answer", STATUS)


def test_refusals_are_no_flood_until_the_peer_knows_our_settings() -> None:
    connection = open_connection(Limits(streams_per_connection=1))
    wire = b"".join(headers_frame(n) for n in range(1, 401, 2))
    assert connection.receive(wire) == [HeadersReceived(1)]
    more = b"".join(headers_frame(n) for n in range(401, 803, 2))
    events = connection.receive(frame(SETTINGS, ACK, 0) + more)
    assert events == [ConnectionClosed(CALM)]


def test_refusals_before_the_peer_knows_our_settings_are_bounded() -> None:
    connection = open_connection(Limits(streams_per_connection=1))
    wire = b"".join(headers_frame(n) for n in range(1, 2 * MOST_EARLY + 5, 2))
    assert connection.receive(wire)[-1] == ConnectionClosed(CALM)


def test_a_peer_may_widen_the_window_of_each_stream_that_it_opens() -> None:
    connection = open_connection()
    streams = range(1, 500, 2)
    events = connection.receive(b"".join(headers_frame(n) + window_frame(n, 1) for n in streams))
    assert events == [HeadersReceived(n) for n in streams]
    assert connection.receive(window_frame(1, 1) * IDLE)[-1] == ConnectionClosed(CALM)


def test_a_response_that_waits_forgives_no_idle_frames() -> None:
    connection = open_connection()
    connection.receive(settings_frame({Setting.INITIAL_WINDOW_SIZE: 0}) + whole(1))
    connection.send_response(1, OK, b"answer", STATUS)
    idle = (frame(PING, 0, 0, bytes(8)) + window_frame(0, 1)) * IDLE
    assert connection.receive(idle)[-1] == ConnectionClosed(CALM)


OF_A_STREAM = {
    "DATA": data_frame(1, b"x", flags=0),
    "HEADERS": headers_frame(1, OK, END_HEADERS | END_STREAM),
    "PRIORITY": frame(PRIORITY, 0, 1, bytes(5)),
    "RST_STREAM": reset_frame(1, 8),
    "WINDOW_UPDATE": window_frame(1, 1),
}


@pytest.mark.parametrize("wire", OF_A_STREAM.values(), ids=OF_A_STREAM.keys())
def test_frames_of_a_stream_that_we_ended_count_as_idle(wire: bytes) -> None:
    connection = open_connection()
    connection.receive(OPEN)
    connection.reset(1, Http2ErrorCode.CANCEL)
    assert connection.receive(wire * IDLE)[-1:] == [ConnectionClosed(CALM)]


@pytest.mark.parametrize("wire", OF_A_STREAM.values(), ids=OF_A_STREAM.keys())
def test_a_few_frames_of_a_stream_that_we_ended_were_under_way(wire: bytes) -> None:
    connection = open_connection()
    connection.receive(OPEN)
    connection.reset(1, Http2ErrorCode.CANCEL)
    assert connection.receive(wire * 2) == []


def test_a_peer_that_leaves_again_and_again_counts_as_idle() -> None:
    connection = open_connection()
    connection.receive(OPEN)
    assert connection.receive(frame(GOAWAY, 0, 0, bytes(8)) * IDLE)[-1] == ConnectionClosed(CALM)


def test_a_peer_that_reads_much_may_widen_its_windows_as_often() -> None:
    connection = open_connection()
    connection.receive(
        window_frame(0, 2**30) + settings_frame({Setting.INITIAL_WINDOW_SIZE: 2**30}) + whole(1)
    )
    connection.send_response(1, OK, bytes(16_384 * 400), STATUS)
    acknowledged = (window_frame(0, 16_384) + frame(PING, 0, 0, bytes(8))) * 400
    assert connection.receive(acknowledged) == []


def test_a_closed_stream_is_remembered_only_so_long() -> None:
    connection = open_connection(Limits(resets_per_second=10_000))
    for stream_id in range(1, 1401, 2):
        connection.receive(headers_frame(stream_id))
        connection.reset(stream_id, Http2ErrorCode.CANCEL)
    connection.take_output()
    assert connection.receive(data_frame(1399)) == []
    assert errors(connection) == []
    assert connection.receive(data_frame(1)) == []
    assert errors(connection) == [("RST_STREAM", 1, CLOSED)]


FRAMES = st.builds(
    frame,
    st.integers(0, 10) | st.sampled_from([DATA, HEADERS, CONTINUATION, WINDOW_UPDATE]),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D]) | st.integers(0, 255),
    st.integers(0, 9) | st.integers(0, 2**32 - 1),
    st.sampled_from([b"", bytes(4), bytes(5), bytes(8), b"\0\0\0\7", BLOCK, STATUS]) | st.binary(max_size=30),
)
REQUESTS = st.builds(whole, st.sampled_from(range(1, 30, 2)), st.binary(max_size=50))
WIRES = st.lists(FRAMES | REQUESTS | st.binary(max_size=20), max_size=20).map(b"".join)


def replay(wire: bytes, cuts: list[int]) -> tuple[list[object], bytes]:
    """All events but the announcements, which depend on the cuts, and all output."""
    connection = Http2Connection(Limits(body_bytes=40, resets_per_second=5))
    events: list[Event] = []
    places = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    for start, stop in pairwise(places):
        events += connection.receive(wire[start:stop])
    kept = [content(event) for event in events if not isinstance(event, HeadersReceived)]
    return kept, connection.take_output()


@given(WIRES, st.lists(st.integers(0, 2000), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_bytes_mean_the_same_however_they_are_cut(wire: bytes, cuts: list[int]) -> None:
    assert replay(GREETING + wire, cuts) == replay(GREETING + wire, [])


@given(st.randoms(use_true_random=False), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_no_mutation_of_a_conversation_raises(chance: random.Random, mutations: int) -> None:
    wire = bytearray(GREETING + b"".join(whole(n) for n in range(1, 21, 2)) + window_frame(0, 9))
    for _ in range(mutations):
        wire[chance.randrange(len(wire))] = chance.randrange(256)
    connection = Http2Connection(Limits())
    for stream_id in range(1, 21, 2):
        connection.receive(bytes(wire[: len(wire) // 10]))
        del wire[: len(wire) // 10]
        connection.send_response(stream_id, OK, b"b" * 20_000, STATUS)
    for kind, *_ in take_frames(connection):
        assert kind <= CONTINUATION
