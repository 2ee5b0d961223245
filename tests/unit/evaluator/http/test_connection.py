"""Conversations, most with the `h2` package as the client."""

from __future__ import annotations

import pytest
from h2.events import (
    ConnectionTerminated,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http import h2_frames
from evaluator.http.h2_frames import (
    END_HEADERS,
    END_STREAM,
    BodyTooLarge,
    ConnectionClosed,
    HeadersReceived,
    Http2ErrorCode,
    RequestReceived,
    Setting,
    StreamClosed,
    Writable,
    frame,
)
from evaluator.http.hpack import encode_block
from evaluator.http.limits import Limits
from tests.unit.evaluator.http.wire import (
    BLOCK,
    HEAD,
    OK,
    STATUS,
    Pair,
    data_frame,
    errors,
    headers_frame,
    open_connection,
    take_frames,
    whole,
)


def test_a_request_and_its_response_with_trailers() -> None:
    pair = Pair()
    stream_id = pair.request(b"question")
    request = pair.requests()[0]
    assert (request.stream_id, request.headers, request.body) == (stream_id, HEAD, b"question")
    pair.server.send_response(stream_id, OK, b"answer", STATUS)
    pair.pump()
    assert pair.events_of(ResponseReceived)[0].headers == [(b":status", b"200")]
    assert pair.body(stream_id) == b"answer"
    assert pair.events_of(TrailersReceived)[0].headers == [(b"grpc-status", b"0")]
    assert len(pair.events_of(StreamEnded)) == 1
    assert pair.server.open_streams == 0


@pytest.mark.parametrize("trailers", [None, STATUS], ids=["plain", "trailers"])
@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 65_535, 65_536, 500_000])
def test_a_body_of_any_size_arrives(size: int, trailers: bytes | None) -> None:
    pair = Pair()
    stream_id = pair.request()
    body = bytes(range(256)) * (size // 256 + 1)
    pair.server.send_response(stream_id, OK, body[:size], trailers)
    pair.pump()
    assert pair.body(stream_id) == body[:size]
    assert len(pair.events_of(StreamEnded)) == 1
    assert len(pair.events_of(TrailersReceived)) == (trailers is not None)
    assert (pair.server.open_streams, pair.server.waiting_bytes) == (0, 0)


@pytest.mark.parametrize("size", [0, 100_000, 1_000_000])
def test_a_request_body_of_any_size_arrives(size: int) -> None:
    pair = Pair()
    pair.request(b"b" * size)
    assert [len(request.body) for request in pair.requests()] == [size]


def test_many_bodies_in_a_row_never_exhaust_the_connection_window() -> None:
    pair = Pair()
    for _ in range(12):
        stream_id = pair.request(b"b" * 300_000)
        pair.server.send_response(stream_id, OK, b"", None)
        pair.pump()
    assert len(pair.requests()) == 12


def test_streams_are_answered_in_any_order() -> None:
    pair = Pair()
    ids = [pair.request(b"%d" % number) for number in range(100)]
    for stream_id in reversed(ids):
        pair.server.send_response(stream_id, OK, b"r%d" % stream_id, STATUS)
    pair.pump()
    assert [pair.body(stream_id) for stream_id in ids] == [b"r%d" % number for number in ids]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=6), st.integers(0, 500))
@settings(max_examples=40, deadline=None)
def test_every_body_arrives_through_a_small_window(sizes: list[int], window: int) -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
    pair.acknowledging = False
    ids = [pair.request() for _ in sizes]
    for stream_id, size in zip(ids, sizes, strict=True):
        pair.server.send_response(stream_id, OK, b"%d" % (stream_id % 10) * size, STATUS)
    pair.pump()
    assert all(len(pair.body(stream_id)) <= window for stream_id in ids)
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100_000})
    pair.pump()
    assert [len(pair.body(stream_id)) for stream_id in ids] == sizes
    assert len(pair.events_of(TrailersReceived)) == len(sizes)


def test_streams_share_the_connection_window_in_turn() -> None:
    connection = open_connection()
    connection.receive(whole(1) + whole(3))
    for stream_id in (1, 3):
        connection.send_response(stream_id, OK, b"b" * 200_000, STATUS)
    connection.take_output()
    for stream_id in (1, 3):
        connection.receive(h2_frames.window_frame(stream_id, 500_000))
    served = []
    for _ in range(4):
        connection.receive(h2_frames.window_frame(0, 10))
        served += [stream_id for _, _, stream_id, _ in take_frames(connection)]
    assert served == [1, 3, 1, 3]


def test_a_stream_that_waited_is_reported_writable_once_all_is_out() -> None:
    pair = Pair()
    pair.acknowledging = False
    stream_id = pair.request()
    pair.server.send_headers(stream_id, OK)
    assert pair.server.writable(stream_id)
    pair.server.send_body(stream_id, b"b" * 65_536)
    pair.pump()
    assert (pair.server.writable(stream_id), pair.server.waiting_bytes) == (False, 1)
    pair.client.increment_flow_control_window(100, stream_id)
    pair.pump()
    assert Writable(stream_id) not in pair.events
    pair.client.increment_flow_control_window(100)
    pair.pump()
    assert Writable(stream_id) in pair.events
    assert pair.server.writable(stream_id)


def test_trailers_wait_for_the_body_before_them() -> None:
    connection = open_connection()
    connection.receive(whole(1))
    connection.send_headers(1, OK)
    connection.send_body(1, b"b" * 65_536)
    connection.send_trailers(1, STATUS)
    assert not any(flags & END_STREAM for _, flags, _, _ in take_frames(connection))
    assert not connection.is_open(1)
    more = h2_frames.window_frame(0, 1) + h2_frames.window_frame(1, 1)
    assert connection.receive(more) == []
    end = (h2_frames.HEADERS, END_HEADERS | END_STREAM, 1, STATUS)
    assert take_frames(connection) == [(h2_frames.DATA, 0, 1, b"b"), end]
    assert connection.open_streams == 0


def test_chunks_may_be_sent_one_by_one_and_the_last_ends_the_stream() -> None:
    pair = Pair()
    stream_id = pair.request()
    pair.server.send_headers(stream_id, OK)
    for chunk in (b"one", b"two"):
        pair.server.send_body(stream_id, chunk)
    pair.server.send_body(stream_id, b"", end_stream=True)
    pair.pump()
    assert pair.body(stream_id) == b"onetwo"
    assert len(pair.events_of(StreamEnded)) == 1


def test_a_block_longer_than_a_frame_is_continued() -> None:
    pair = Pair()
    stream_id = pair.request()
    block = encode_block([(":status", "200"), ("x-long", "v" * 40_000)])
    pair.server.send_headers(stream_id, block, end_stream=True)
    pair.pump()
    assert pair.events_of(ResponseReceived)[0].headers[1] == (b"x-long", b"v" * 40_000)
    assert len(pair.events_of(StreamEnded)) == 1


def test_a_client_with_a_small_table_is_answered_that_we_keep_none() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 100})
    for _ in range(2):
        pair.server.send_response(pair.request(), OK, b"body", STATUS)
        pair.pump()
    assert len(pair.events_of(StreamEnded)) == 2


def test_a_request_is_announced_when_its_body_does_not_come_along() -> None:
    connection = open_connection()
    assert connection.receive(headers_frame(1)) == [HeadersReceived(1)]
    assert connection.receive(data_frame(1, b"a", 0)) == []
    assert len(connection.receive(data_frame(1, b"b"))) == 1
    assert [type(event).__name__ for event in connection.receive(whole(3))] == ["RequestReceived"]


def test_request_trailers_end_the_body() -> None:
    pair = Pair()
    pair.client.send_headers(1, HEAD)
    pair.client.send_data(1, b"body")
    pair.client.send_headers(1, [("x-checksum", "1")], end_stream=True)
    pair.pump()
    assert [request.body for request in pair.requests()] == [b"body"]


@pytest.mark.parametrize("declared", [False, True], ids=["found out", "declared"])
def test_a_body_over_the_limit_is_answered_and_the_rest_of_it_ignored(declared: bool) -> None:
    connection = open_connection(Limits(body_bytes=10))
    head = (*HEAD, ("content-length", "22")) if declared else HEAD
    events = connection.receive(headers_frame(1, encode_block(head)) + data_frame(1, b"b" * 11, flags=0))
    assert [event.block.fields for event in events if isinstance(event, BodyTooLarge)] == [head]
    connection.send_headers(1, OK, end_stream=True)
    assert errors(connection) == [("RST_STREAM", 1, Http2ErrorCode.NO_ERROR)]
    assert connection.receive(data_frame(1, b"b" * 11) + frame(h2_frames.PING, 0, 0, bytes(8))) == []
    assert [kind for kind, *_ in take_frames(connection)] == [h2_frames.PING]


def test_a_body_of_just_the_limit_is_taken() -> None:
    connection = open_connection(Limits(body_bytes=10))
    events = connection.receive(whole(1, b"b" * 10))
    assert [type(event).__name__ for event in events] == ["RequestReceived"]


def test_without_a_limit_any_body_is_taken() -> None:
    pair = Pair(Limits(body_bytes=0))
    pair.request(b"b" * 3_000_000)
    assert [len(request.body) for request in pair.requests()] == [3_000_000]


def test_a_header_block_over_the_limit_ends_the_connection() -> None:
    connection = open_connection(Limits(header_bytes=1000))
    block = encode_block([*HEAD, ("x-long", "v" * 2000)])
    assert connection.receive(headers_frame(1, block)) == [ConnectionClosed(Http2ErrorCode.ENHANCE_YOUR_CALM)]


def test_a_read_is_parsed_so_many_frames_at_a_time() -> None:
    connection, found = open_connection(), 0
    for piece in (b"".join(whole(stream_id) for stream_id in range(1, 21, 2)), b"", b"", b""):
        assert connection.unread is (0 < found < 10)
        found += len(connection.receive(piece, most=6))
    assert (found, connection.unread) == (10, False)


def test_the_peer_resets_a_stream() -> None:
    pair = Pair()
    stream_id = pair.request()
    pair.server.send_response(stream_id, OK, b"b" * 100_000, STATUS)
    pair.acknowledging = False
    pair.client.reset_stream(stream_id, Http2ErrorCode.CANCEL)
    pair.pump()
    assert StreamClosed(stream_id, Http2ErrorCode.CANCEL) in pair.events
    assert (pair.server.open_streams, pair.server.waiting_bytes) == (0, 0)
    pair.server.send_body(stream_id, b"late")
    assert pair.server.take_output() == b""


def test_we_reset_a_stream() -> None:
    pair = Pair()
    stream_id = pair.request()
    pair.server.reset(stream_id, Http2ErrorCode.CANCEL)
    pair.server.reset(stream_id, Http2ErrorCode.CANCEL)
    pair.pump()
    assert [reset.error_code for reset in pair.events_of(StreamReset)] == [Http2ErrorCode.CANCEL]
    assert not pair.server.is_open(stream_id)


def test_a_drain_says_at_last_which_streams_were_processed() -> None:
    connection = open_connection()
    connection.receive(whole(1))
    connection.goaway(last=False)
    connection.ping()
    assert (errors(connection), connection.unanswered_pings) == ([("GOAWAY", 2**31 - 1, 0)], 1)
    assert len(connection.receive(whole(3) + frame(h2_frames.PING, h2_frames.ACK, 0, bytes(8)))) == 1
    assert (connection.draining, connection.unanswered_pings) == (True, 0)
    connection.goaway()
    assert errors(connection) == [("GOAWAY", 3, Http2ErrorCode.NO_ERROR)]


def test_after_the_last_goaway_new_streams_are_refused() -> None:
    connection = open_connection()
    connection.receive(whole(1))
    connection.goaway()
    connection.take_output()
    assert connection.receive(whole(3)) == []
    assert errors(connection) == [("RST_STREAM", 3, Http2ErrorCode.REFUSED_STREAM)]
    connection.send_response(1, OK, b"answer", STATUS)
    assert len(take_frames(connection)) == 3


def test_a_goaway_of_the_peer_closes_what_is_idle() -> None:
    pair = Pair()
    pair.client.close_connection()
    pair.pump()
    assert pair.events == [ConnectionClosed(Http2ErrorCode.NO_ERROR)]
    assert pair.server.receive(whole(1)) == []


def test_a_goaway_of_the_peer_lets_open_streams_finish() -> None:
    connection = open_connection()
    connection.receive(whole(1) + h2_frames.goaway_frame(0, 0))
    assert (connection.draining, connection.open_streams) == (True, 1)
    connection.send_response(1, OK, b"answer", STATUS)
    assert (len(take_frames(connection)), connection.open_streams) == (3, 0)


def test_more_streams_than_allowed_are_refused() -> None:
    connection = open_connection(Limits(streams_per_connection=2))
    events = connection.receive(whole(1) + whole(3) + whole(5))
    assert len(events) == 2
    assert errors(connection) == [("RST_STREAM", 5, Http2ErrorCode.REFUSED_STREAM)]
    connection.send_response(1, OK, b"answer", STATUS)
    assert len(connection.receive(whole(7))) == 1


def test_our_settings_come_first() -> None:
    pair = Pair(Limits(streams_per_connection=7, header_bytes=1234))
    assert pair.client.remote_settings.max_concurrent_streams == 7
    assert pair.client.remote_settings.max_header_list_size == 1234
    assert pair.client.outbound_flow_control_window == 1_048_576


def test_a_larger_frame_size_of_the_peer_is_used() -> None:
    connection = open_connection()
    connection.receive(h2_frames.settings_frame({Setting.MAX_FRAME_SIZE: 50_000}))
    connection.receive(whole(1))
    connection.take_output()
    connection.send_response(1, OK, b"b" * 50_000, STATUS)
    assert [len(payload) for *_, payload in take_frames(connection)][1] == 50_000


def test_a_ping_is_returned() -> None:
    pair = Pair()
    pair.client.ping(b"12345678")
    pair.pump()
    assert [ping.ping_data for ping in pair.events_of(PingAckReceived)] == [b"12345678"]


def test_padding_and_priority_are_stripped() -> None:
    pair = Pair()
    pair.client.send_headers(1, HEAD, priority_weight=16, priority_depends_on=0)
    pair.client.send_data(1, b"body", end_stream=True, pad_length=200)
    pair.pump()
    assert [(request.headers, request.body) for request in pair.requests()] == [(HEAD, b"body")]


def test_an_open_header_block_is_seen_until_its_end() -> None:
    connection = open_connection()
    connection.receive(headers_frame(1, b"\x83\x86", flags=END_STREAM))
    assert connection.header_block_open
    rest = encode_block(HEAD[2:])
    events = connection.receive(frame(h2_frames.CONTINUATION, END_HEADERS, 1, rest))
    assert [type(event).__name__ for event in events] == ["RequestReceived"]
    assert not connection.header_block_open


def test_a_header_block_is_open_from_the_type_of_its_first_frame_to_its_last_byte() -> None:
    connection = open_connection()
    request = headers_frame(1)
    seen = []
    for byte in request:
        connection.receive(bytes([byte]))
        seen.append(connection.header_block_open)
    assert seen == [False] * 3 + [True] * (len(request) - 4) + [False]


def test_a_body_that_has_begun_is_no_open_header_block() -> None:
    connection = open_connection()
    connection.receive(headers_frame(1) + data_frame(1, b"hello")[:10])
    assert not connection.header_block_open


def test_a_header_block_may_come_byte_by_byte() -> None:
    connection = open_connection()
    parts = [headers_frame(1, b"", flags=END_STREAM)]
    parts += [frame(h2_frames.CONTINUATION, 0, 1, BLOCK[at : at + 1]) for at in range(len(BLOCK))]
    (event,) = connection.receive(b"".join(parts) + frame(h2_frames.CONTINUATION, END_HEADERS, 1))
    assert isinstance(event, RequestReceived)
    assert (event.stream_id, event.headers, event.body) == (1, HEAD, b"")


def test_requests_that_never_repeat_are_all_understood() -> None:
    connection = open_connection()
    for stream_id in range(1, 401, 2):
        head = (*HEAD, ("x-number", str(stream_id)))
        (event,) = connection.receive(headers_frame(stream_id, encode_block(head), 5))
        assert isinstance(event, RequestReceived)
        assert event.headers == head
        connection.send_headers(stream_id, OK)
        connection.send_trailers(stream_id, STATUS)
        assert connection.open_streams == 0


def test_a_client_that_breaks_the_protocol_gets_the_reason() -> None:
    pair = Pair()
    pair.server.receive(b"\xff" * 9)
    pair.pump()
    closed = pair.events_of(ConnectionTerminated)
    assert closed[0].additional_data == b"frame too long"


def test_large_frames_count_as_several_where_a_piece_is_parsed() -> None:
    connection = open_connection()
    block = BLOCK + encode_block([(f"x-{number}", "v" * 200) for number in range(60)])
    wire = b"".join(headers_frame(stream_id, block) for stream_id in range(1, 33, 2))
    begun = len(connection.receive(wire, most=32))
    assert 0 < begun < 5
    while connection.unread:
        begun += len(connection.receive(b"", most=32))
    assert begun == 16
