"""HTTP/2 as a peer binds it to routes: back-pressure, time, the end. Calls themselves: test_rpc."""

from __future__ import annotations

import tracemalloc

import pytest

from evaluator.http import h2_frames
from evaluator.http.grpc_framing import frame as framed
from evaluator.http.h2_frames import END_HEADERS, END_STREAM, frame
from evaluator.http.hpack import Decoder, encode_block
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.limits import Limits
from evaluator.http.messages import Call, Code, MessageStream, RpcError
from evaluator.http.routes import Routes
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.serving import ROUTES, Line

WIDE = h2_frames.settings_frame({h2_frames.Setting.INITIAL_WINDOW_SIZE: 2**30})
KNOWN = encode_block([*wire.HEAD[:2], (":path", "/"), (":authority", "h")])
PING_ACK = frame(h2_frames.PING, h2_frames.ACK, 0, bytes(8))


class Subscriber:
    """Owns one stream as its contract asks: sends the newest state when it may."""

    def __init__(self, stream: MessageStream) -> None:
        self.stream = stream
        self.state = self.sent = 0
        self.ends = 0
        stream.on_writable = self.publish
        stream.on_closed = self.end

    def publish(self) -> None:
        if self.stream.writable and self.state != self.sent:
            self.sent = self.state
            self.stream.send(b"%d" % self.state + bytes(1000))

    def end(self) -> None:
        self.ends += 1


class Subscriptions:
    """A line whose stream route keeps its subscribers."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.all: list[Subscriber] = []
        routes = Routes(streams={"/t.T/Watch": self.open}, http=ROUTES.http, unary=ROUTES.unary)
        self.line = Line(Http2Peer, limits, routes)
        self.line.feed(wire.GREETING)

    def open(self, call: Call, message: bytes, stream: MessageStream) -> None:
        self.all.append(Subscriber(stream))

    def subscribe(self, stream_id: int, *headers: tuple[str, str]) -> Subscriber:
        self.line.feed(call(stream_id, "/t.T/Watch", b"", *headers))
        return self.all[-1]

    def publish(self, state: int) -> list[bytes]:
        for subscriber in self.all:
            subscriber.state = state
            subscriber.publish()
        return states(self.line.pipe.take())


def call(stream_id: int, path: str, message: bytes, *headers: tuple[str, str]) -> bytes:
    head = [(":method", "POST"), (":scheme", "http"), (":path", path), *headers]
    block = encode_block([*head, ("content-type", "application/grpc"), ("te", "trailers")])
    return wire.headers_frame(stream_id, block) + wire.data_frame(stream_id, framed(message))


def ask(stream_id: int, path: str = "/", method: str = "GET", *headers: tuple[str, str]) -> bytes:
    head = ((":method", method), (":scheme", "http"), (":path", path), (":authority", "h"))
    return wire.headers_frame(stream_id, encode_block((*head, *headers)), END_HEADERS | END_STREAM)


def fields(output: bytes) -> list[dict[str, str]]:
    """The header blocks in `output`."""
    kinds = [(kind, payload) for kind, _, _, payload in wire.parse_frames(output)]
    return [dict(Decoder(10_000).decode(block).fields) for kind, block in kinds if kind == h2_frames.HEADERS]


def states(output: bytes) -> list[bytes]:
    """The states that subscribers were sent."""
    bodies = [payload for kind, _, _, payload in wire.parse_frames(output) if kind == h2_frames.DATA]
    return [body[5:].rstrip(b"\0") for body in bodies]


def kinds(output: bytes) -> list[int]:
    return [kind for kind, _, _, _ in wire.parse_frames(output)]


def plain(**limits: float) -> Line[Http2Peer]:
    line = Line(Http2Peer, Limits(**limits))  # type: ignore[arg-type] # names and numbers of Limits
    line.feed(wire.GREETING)
    return line


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (ask(1), "200"),
        (ask(1, "/no"), "404"),
        (ask(1, "/", "DELETE"), "405"),
        (ask(1, "/bug"), "500"),
        (ask(1, "/t.T/Echo", "POST"), "415"),
        (ask(1, "/t.T/Echo", "POST", ("content-type", "application/grpc-web")), "200"),
        (ask(1, "/t.T/Echo", "POST", ("content-type", "application/grpc+json")), "415"),
        (ask(1, "/t.T/Echo", "GET", ("content-type", "application/grpc")), "405"),
        (ask(1, "/", "POST", ("content-length", "2000000")), "413"),
    ],
)
def test_a_request_is_answered_with_its_status(sent: bytes, status: str) -> None:
    line = plain()
    if status == "413":
        sent = sent.replace(b"\x01\x05\0\0\0\1", b"\x01\x04\0\0\0\1")
    assert fields(line.feed(sent))[0][":status"] == status


@pytest.mark.parametrize(
    ("kind", "field"), [("application/json", (":status", "404")), ("application/grpc", ("grpc-status", "12"))]
)
def test_an_unknown_path_is_refused_before_its_body_comes(kind: str, field: tuple[str, str]) -> None:
    line = plain()
    refused = line.feed(wire.headers_frame(1, encode_block([*wire.HEAD, ("content-type", kind)])))
    assert field in fields(refused)[0].items()
    for _ in range(10):
        line.feed(wire.data_frame(1, bytes(10_000), 0))
    assert line.peer.measure() < 1_000
    assert fields(line.feed(wire.data_frame(1), ask(3)))[0][":status"] == "200"


def test_a_plain_response_has_its_length_and_the_date() -> None:
    (head,) = fields(plain().feed(ask(1, "/tree/x?y")))
    assert head["content-length"] == "9"
    assert head["date"].endswith("GMT")


def test_head_is_get_without_the_body() -> None:
    output = plain().feed(ask(1, "/", "HEAD"))
    assert kinds(output) == [h2_frames.HEADERS]
    assert fields(output)[0]["content-length"] == "2"


def test_headers_over_the_limit_end_the_connection() -> None:
    line = plain(header_bytes=300)
    assert kinds(line.feed(ask(1, "/", "GET", ("x", "y" * 400)))) == [h2_frames.GOAWAY]
    assert line.over()


def test_a_call_over_the_limit_is_resource_exhausted() -> None:
    head, trailers = fields(plain(body_bytes=100).feed(call(1, "/t.T/Echo", bytes(200))))
    assert head[":status"] == "200"
    assert trailers["grpc-status"] == str(int(Code.RESOURCE_EXHAUSTED))


@pytest.mark.parametrize(("path", "code"), [("/t.T/Refuse", Code.NOT_FOUND), ("/t.T/Fail", Code.INTERNAL)])
def test_a_unary_call_that_fails_has_its_status_in_trailers_behind_headers(path: str, code: Code) -> None:
    frames_sent = list(wire.parse_frames(plain().feed(call(1, path, b"x"))))
    assert [(kind, flags) for kind, flags, _, _ in frames_sent] == [
        (h2_frames.HEADERS, END_HEADERS),
        (h2_frames.HEADERS, END_HEADERS | END_STREAM),
    ]
    head, trailers = (dict(Decoder(10_000).decode(block).fields) for _, _, _, block in frames_sent)
    assert (head[":status"], head.get("grpc-status")) == ("200", None)
    assert trailers["grpc-status"] == str(int(code))


def test_a_stream_that_is_refused_gets_the_status_in_its_only_headers() -> None:
    def refuse(call: Call, message: bytes, stream: MessageStream) -> None:
        raise RpcError(Code.UNAVAILABLE, "later")

    line = Line(Http2Peer, routes=Routes(streams={"/t.T/S": refuse}))
    line.feed(wire.GREETING)
    ((kind, flags, _, block),) = wire.parse_frames(line.feed(call(1, "/t.T/S", b"")))
    assert (kind, flags) == (h2_frames.HEADERS, END_HEADERS | END_STREAM)
    assert dict(Decoder(10_000).decode(block).fields)["grpc-status"] == "14"


def test_all_that_one_read_brings_is_answered_in_one_write() -> None:
    line = plain()
    before = line.pipe.writes
    output = line.feed(b"".join(call(number, "/t.T/Echo", b"x") for number in range(1, 99, 2)))
    assert kinds(output).count(h2_frames.DATA) == 49
    assert line.pipe.writes == before + 1


def test_requests_wait_while_the_peer_reads_nothing() -> None:
    line = plain()
    line.feed(WIDE, frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30)))
    line.pipe.fills_after = 1
    first = line.feed(b"".join(ask(number, "/large") for number in range(1, 100, 2)))
    assert len(first) < 200_000
    assert not line.pipe.reading
    line.peer.resume_writing()
    assert len(fields(first + line.pipe.take())) == 50


def test_requests_wait_while_flow_control_holds_back_too_much() -> None:
    line = plain(write_buffer_bytes=200_000)
    first = line.feed(b"".join(ask(number, "/large") for number in range(1, 100, 2)))
    assert len(fields(first)) < 6
    window = frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30))
    rest = line.feed(window, WIDE)
    assert len(fields(first + rest)) == 50


def test_a_request_that_was_reset_while_it_waited_is_not_served() -> None:
    line = plain(write_buffer_bytes=50_000)
    line.feed(ask(1, "/large") + ask(3, "/large") + ask(5, "/large"))
    line.feed(frame(h2_frames.RST_STREAM, 0, 5, bytes(4)))
    output = line.feed(frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30)), WIDE)
    assert {stream_id for _, _, stream_id, _ in wire.parse_frames(output)} <= {0, 1, 3}


def test_a_stream_says_its_headers_before_its_first_message() -> None:
    subscriptions = Subscriptions()
    output = subscriptions.line.feed(call(1, "/t.T/Watch", b""))
    assert fields(output)[0]["content-type"] == "application/grpc"
    assert subscriptions.publish(7) == [b"7"]


def test_a_stream_that_flow_control_holds_back_skips_to_the_newest() -> None:
    subscriptions = Subscriptions()
    subscriptions.line.feed(h2_frames.settings_frame({h2_frames.Setting.INITIAL_WINDOW_SIZE: 1500}))
    subscriptions.subscribe(1)
    assert subscriptions.publish(1) == [b"1"]
    for state in range(2, 50):
        subscriptions.publish(state)
    window = frame(h2_frames.WINDOW_UPDATE, 0, 1, h2_frames.UINT32.pack(10_000))
    rest = states(subscriptions.line.feed(window))
    assert rest[-1] == b"49"
    assert len(rest) == 2


def test_a_large_message_waits_once_for_however_many_slow_streams() -> None:
    everybody = [Subscriptions() for _ in range(20)]
    streams = [each.subscribe(1).stream for each in everybody]
    message = bytes(2**20)
    tracemalloc.start()
    for stream in streams:
        stream.send(message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * len(message)


def test_a_large_message_arrives_as_it_was_sent() -> None:
    subscriptions = Subscriptions()
    subscriptions.line.feed(WIDE + frame(h2_frames.WINDOW_UPDATE, 0, 0, h2_frames.UINT32.pack(2**30)))
    subscriptions.subscribe(1).stream.send(message := bytes(range(256)) * 400)
    sent = wire.parse_frames(subscriptions.line.pipe.take())
    assert b"".join(body for kind, _, _, body in sent if kind == h2_frames.DATA) == framed(message)


def test_a_stream_that_the_transport_holds_back_skips_to_the_newest() -> None:
    subscriptions = Subscriptions()
    subscriptions.subscribe(1)
    subscriptions.line.peer.pause_writing()
    assert [subscriptions.publish(state) for state in range(1, 50)] == [[]] * 49
    subscriptions.line.peer.resume_writing()
    assert states(subscriptions.line.pipe.take()) == [b"49"]


def test_streams_of_one_connection_are_offered_the_transport_in_turn() -> None:
    subscriptions = Subscriptions()
    subscribers = [subscriptions.subscribe(number) for number in (1, 3, 5)]
    line = subscriptions.line
    line.peer.pause_writing()
    for state in (1, 2, 3):
        subscriptions.publish(state)
        line.pipe.fills_after = len(line.pipe.written) + 1
        line.peer.resume_writing()
    assert [subscriber.sent for subscriber in subscribers] == [1, 2, 3]


def test_message_on_a_stream_that_is_not_writable_is_refused() -> None:
    subscriptions = Subscriptions()
    subscriber = subscriptions.subscribe(1)
    subscriptions.line.peer.pause_writing()
    assert not subscriber.stream.send(b"x")


@pytest.mark.parametrize("how", ["reset", "lost", "goaway", "garbage"])
def test_the_owner_is_notified_once_that_its_stream_has_ended(how: str) -> None:
    subscriptions = Subscriptions()
    subscriber, line = subscriptions.subscribe(1), subscriptions.line
    if how == "reset":
        line.feed(frame(h2_frames.RST_STREAM, 0, 1, bytes(4)))
    elif how == "garbage":
        line.feed(b"\xff" * 100)
    elif how == "goaway":
        line.peer.cut()
    line.peer.connection_lost(None)
    assert subscriber.ends == 1
    assert subscriber.stream.closed
    subscriber.stream.close()


def test_an_owner_that_closes_its_stream_is_not_notified() -> None:
    subscriptions = Subscriptions()
    subscriber = subscriptions.subscribe(1)
    subscriber.stream.close(Code.UNAVAILABLE, "later")
    assert fields(subscriptions.line.pipe.take())[-1] == {"grpc-status": "14", "grpc-message": "later"}
    subscriptions.line.peer.connection_lost(None)
    assert subscriber.ends == 0


def test_an_owner_that_fails_loses_its_stream_only(caplog: pytest.LogCaptureFixture) -> None:
    subscriptions = Subscriptions()
    broken, sound = subscriptions.subscribe(1), subscriptions.subscribe(3)
    broken.stream.on_writable = lambda: 1 / 0  # type: ignore[assignment] # it raises
    subscriptions.line.peer.pause_writing()
    sound.state = 5
    subscriptions.line.peer.resume_writing()
    assert broken.stream.closed
    assert sound.sent == 5
    assert "ZeroDivisionError" in caplog.text


def test_a_stream_past_its_deadline_ends_with_that_status() -> None:
    subscriptions = Subscriptions()
    subscriber = subscriptions.subscribe(1, ("grpc-timeout", "5S"))
    assert not fields(subscriptions.line.wait(4))
    assert fields(subscriptions.line.wait(2))[0]["grpc-status"] == "4"
    assert subscriber.ends == 1


def test_a_body_that_does_not_come_ends_its_stream_only() -> None:
    line = plain(body_seconds=5)
    line.feed(wire.headers_frame(1, KNOWN))
    assert h2_frames.RST_STREAM not in kinds(line.wait(4))
    assert h2_frames.RST_STREAM in kinds(line.wait(2))
    assert fields(line.feed(ask(3)))[0][":status"] == "200"


def test_a_header_block_that_does_not_end_ends_the_connection() -> None:
    line = plain(header_seconds=3)
    line.feed(wire.headers_frame(1, flags=0))
    for _ in range(8):
        line.feed(frame(h2_frames.CONTINUATION, 0, 1, bytes(300)))
        line.wait(0.5)
    assert line.over()


def test_a_connection_without_a_stream_is_let_go_when_idle() -> None:
    line = plain(idle_seconds=300)
    line.feed(ask(1))
    line.wait(299)
    assert not line.over()
    assert h2_frames.GOAWAY in kinds(line.wait(20))
    assert line.over()


def test_idle_seconds_count_from_the_end_of_the_last_stream() -> None:
    subscriptions = Subscriptions(Limits(idle_seconds=300))
    subscriber, line = subscriptions.subscribe(1), subscriptions.line
    line.wait(100)
    subscriber.stream.close()
    line.wait(290)
    assert not line.over()
    assert h2_frames.GOAWAY in kinds(line.wait(20))
    assert line.over()


def test_a_header_block_that_begins_after_a_long_rest_must_end_as_soon_as_any() -> None:
    subscriptions = Subscriptions(Limits(header_seconds=3))
    line = subscriptions.line
    subscriptions.subscribe(1)
    line.wait(100)
    line.feed(wire.headers_frame(3, flags=0))
    line.wait(2)
    assert not line.over()
    line.wait(2)
    assert line.over()


def test_a_deadline_of_a_second_stream_ends_it_after_a_long_rest() -> None:
    subscriptions = Subscriptions()
    subscriptions.subscribe(1)
    subscriptions.line.wait(100)
    late = subscriptions.subscribe(3, ("grpc-timeout", "2S"))
    subscriptions.line.wait(1)
    assert late.stream.writable
    subscriptions.line.wait(2)
    assert late.stream.closed


def test_pings_do_not_keep_a_connection_without_a_stream() -> None:
    line = plain(idle_seconds=300)
    for _ in range(40):
        line.feed(frame(h2_frames.PING, 0, 0, bytes(8)))
        line.wait(10)
    assert line.over()


@pytest.mark.parametrize("alive", [True, False])
def test_a_silent_peer_with_a_stream_is_asked_for_a_sign_of_life(alive: bool) -> None:
    subscriptions = Subscriptions(Limits(idle_seconds=300))
    subscriber, line = subscriptions.subscribe(1), subscriptions.line
    for _ in range(40):
        asked = h2_frames.PING in kinds(line.wait(20))
        if asked and alive:
            line.feed(PING_ACK)
    assert line.pipe.aborted is not alive
    assert subscriber.stream.writable


def test_draining_names_the_last_stream_once_the_peer_knows() -> None:
    line = plain()
    line.port.draining = True
    line.peer.drain()
    assert kinds(line.pipe.take()) == [h2_frames.GOAWAY, h2_frames.PING]
    assert fields(line.feed(ask(1)))[0][":status"] == "200"
    assert not line.over()
    assert kinds(line.feed(PING_ACK)) == [h2_frames.GOAWAY]
    assert line.over()


def test_draining_does_not_wait_for_a_peer_that_answers_no_ping() -> None:
    line = plain()
    line.port.draining = True
    line.peer.drain()
    line.wait(3)
    assert line.over()


def test_draining_waits_for_the_stream_that_is_open() -> None:
    subscriptions = Subscriptions()
    subscriber, line = subscriptions.subscribe(1), subscriptions.line
    line.port.draining = True
    line.peer.drain()
    line.feed(PING_ACK)
    assert not line.over()
    subscriber.stream.close()
    assert line.over()
    assert fields(line.pipe.take())[-1] == {"grpc-status": "0"}


def test_a_peer_that_goes_away_is_let_go_once_its_streams_have_ended() -> None:
    subscriptions = Subscriptions()
    subscriber, line = subscriptions.subscribe(1), subscriptions.line
    line.feed(frame(h2_frames.GOAWAY, 0, 0, bytes(8)))
    assert not line.over()
    subscriber.stream.close()
    assert line.over()
