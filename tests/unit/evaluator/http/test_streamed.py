"""Plain responses that last: both HTTP versions keep the same rules."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from evaluator.http import h2_frames
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.limits import Limits
from evaluator.http.messages import ByteStream, Headers, Request, Response, Streamed
from evaluator.http.routes import Routes
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.unit.evaluator.http.serving import DATE, Line, post, run_listener
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS = (("content-type", "text/event-stream"),)


class Stage:
    """A route that keeps the bodies it opened, and how they ended."""

    def __init__(self, status: int = 200, run: Callable[[ByteStream], object] | None = None) -> None:
        self.bodies: list[ByteStream] = []
        self.ends = 0
        self.offers = 0
        self._status, self._run = status, run
        self.headers: Headers = HEADERS
        self.routes = Routes(http={("GET", "/s"): self.open, ("POST", "/"): post})

    def open(self, request: Request) -> Response | Streamed:
        return Streamed(self._status, self.headers, self.start)

    def start(self, body: ByteStream) -> None:
        self.bodies.append(body)
        body.on_closed, body.on_writable = self.note_end, self.writable
        if self._run is not None:
            self._run(body)

    def note_end(self) -> None:
        self.ends += 1

    def writable(self) -> None:
        self.offers += 1


def fail(*_: object) -> None:
    raise ValueError("a bug")


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_stream(version: str, stage: Stage, limits: Limits | None = None) -> tuple[Asking, ByteStream]:
    client = Asking(version, stage.routes, limits)
    client.ask("/s", method="GET")
    return client, stage.bodies[0]


def test_headers_are_sent_at_once_and_the_body_as_it_comes(version: str) -> None:
    client, body = open_stream(version, Stage())
    found = client.read()
    assert (found.status, found["content-type"], found["date"]) == (200, "text/event-stream", DATE)
    assert not found["content-length"]
    for piece in (b"one", b"", b"two"):
        body.send(piece)
    assert client.read().body == b"onetwo"
    assert not client.read().ended
    body.finish(b"!")
    assert (client.read().body, client.read().ended) == (b"onetwo!", True)


def test_a_body_may_be_over_before_its_owner_returns(version: str) -> None:
    stage = Stage(run=lambda body: body.finish(b"a"))
    client, body = open_stream(version, stage)
    assert (client.read().body, client.read().ended) == (b"a", True)
    body.close()
    assert client.ask("/", b"next").body == b"next"
    assert stage.ends == 0


def test_head_gets_the_headers_and_opens_nothing(version: str) -> None:
    stage = Stage()
    client = Asking(version, stage.routes)
    found = client.ask("/s", method="HEAD")
    assert (found.status, found["content-type"]) == (200, "text/event-stream")
    assert (found.body, stage.bodies) == (b"", [])


def test_message_after_the_end_is_refused(version: str) -> None:
    _, body = open_stream(version, Stage(run=lambda body: body.close()))
    assert (body.closed, body.writable) == (True, False)
    assert not body.send(b"more")


def test_a_full_transport_is_not_writable_and_offers_when_it_is(version: str) -> None:
    stage = Stage()
    client, body = open_stream(version, stage)
    client.line.peer.pause_writing()
    assert not body.writable
    assert not body.send(b"more")
    client.line.peer.resume_writing()
    assert (body.writable, stage.offers) == (True, 1)


def test_a_peer_that_reads_nothing_loses_its_connection(version: str) -> None:
    stage = Stage()
    client, _ = open_stream(version, stage, Limits(idle_seconds=10))
    client.line.pipe.waiting = 1000
    client.line.peer.pause_writing()
    client.line.wait(30)
    assert client.line.pipe.aborted
    client.line.peer.connection_lost(None)
    assert stage.ends == 1


def test_an_open_body_is_no_idle_connection(version: str) -> None:
    client, body = open_stream(version, Stage(), Limits(idle_seconds=10))
    for _ in range(10):
        client.line.wait(4)
        if version == "HTTP/2":
            client.line.feed(h2_frames.frame(h2_frames.PING, h2_frames.ACK, 0, bytes(8)))
    assert (body.closed, client.line.pipe.closed) == (False, False)


def test_a_peer_that_is_gone_ends_the_body(version: str) -> None:
    stage = Stage()
    client, body = open_stream(version, stage)
    client.line.peer.connection_lost(None)
    assert (body.closed, stage.ends) == (True, 1)


def test_a_cut_ends_the_body_well(version: str) -> None:
    stage = Stage()
    client, body = open_stream(version, stage)
    client.line.peer.drain()
    assert not body.closed
    client.line.peer.cut()
    assert (client.read().ended, body.closed, stage.ends) == (True, True, 1)
    assert client.line.pipe.closed


@pytest.mark.parametrize("when", ["start", "writable"])
def test_an_owner_that_fails_breaks_its_body_off(
    version: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(run=fail if when == "start" else None)
    client, body = open_stream(version, stage)
    if when == "writable":
        body.on_writable = fail
        client.line.peer.pause_writing()
        client.line.peer.resume_writing()
    assert (body.closed, client.read().ended) == (True, False)
    assert client.read().reset or client.line.pipe.closed
    assert "ValueError: a bug" in caplog.text


def test_a_status_without_a_body_cannot_be_streamed(version: str, caplog: pytest.LogCaptureFixture) -> None:
    client = Asking(version, Stage(204).routes)
    assert client.ask("/s", method="GET").status == 500
    assert "204" in caplog.text


def set_size(stage: Stage, length: int = 6) -> Stage:
    stage.headers = (("content-type", "text/plain"), ("content-length", str(length)))
    return stage


def test_a_body_of_known_length_is_just_its_bytes(version: str) -> None:
    client, body = open_stream(version, set_size(Stage()))
    body.send(b"one")
    body.finish(b"two")
    found = client.read()
    assert (found["content-length"], found["transfer-encoding"]) == ("6", "")
    assert (found.body, found.ended) == (b"onetwo", True)
    assert client.ask("/", b"next").body == b"next"


def test_one_that_is_broken_off_cannot_be_taken_for_whole(version: str) -> None:
    stage = set_size(Stage())
    client, body = open_stream(version, stage)
    body.send(b"one")
    body.break_off()
    body.break_off()
    assert (client.read().ended, stage.ends) == (False, 0)
    assert client.read().reset or client.line.pipe.closed


# -- HTTP/1 alone --------------------------------------------------------------------------------------------


def line(stage: Stage, **limits: float) -> Line[Http1Peer]:
    return Line(Http1Peer, Limits(**limits), stage.routes)  # type: ignore[arg-type] # names and numbers of Limits


GET = b"GET /s HTTP/1.1\r\nhost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nnext"


def test_chunks_are_written_with_the_head_before_the_first() -> None:
    stage = Stage(run=lambda body: body.send(b"hello world, hello"))
    connection = line(stage)
    output = connection.feed(GET)
    assert b"\r\ntransfer-encoding: chunked\r\n\r\n12\r\nhello world, hello\r\n" in output
    assert connection.pipe.writes == 1
    stage.bodies[0].close()
    assert connection.pipe.take() == b"0\r\n\r\n"


def test_pipelined_requests_wait_behind_a_body_and_no_more_are_read() -> None:
    stage = Stage()
    connection = line(stage)
    assert b"next" not in connection.feed(GET + POST + POST)
    assert not connection.pipe.reading
    connection.peer.pause_writing()
    connection.peer.resume_writing()
    assert not connection.pipe.reading
    stage.bodies[0].close()
    assert connection.pipe.take().count(b"\r\n\r\nnext") == 2
    assert connection.pipe.reading


def test_a_request_behind_a_body_is_not_late() -> None:
    stage = Stage()
    connection = line(stage, header_seconds=3, idle_seconds=100)
    connection.feed(GET, POST[:20])
    connection.wait(20)
    stage.bodies[0].close()
    connection.pipe.take()
    assert b"200 OK" in connection.feed(POST[20:])


def test_garbage_behind_a_body_is_refused_behind_it() -> None:
    stage = Stage()
    connection = line(stage)
    assert b"400" not in connection.feed(GET, b"\0\0\0\0")
    stage.bodies[0].finish(b"last")
    assert b"last\r\n0\r\n\r\nHTTP/1.1 400" in connection.pipe.take()
    assert connection.over()


def test_an_expectation_behind_a_body_is_met_behind_it() -> None:
    stage = Stage()
    connection = line(stage)
    expecting = POST.replace(b"host", b"expect: 100-continue\r\nhost").removesuffix(b"next")
    assert b"100 Continue" not in connection.feed(GET, expecting)
    stage.bodies[0].close()
    connection.feed(b"")
    assert b"\r\n\r\nnext" in connection.feed(b"next")


def test_http_1_0_reads_until_the_connection_ends() -> None:
    stage = Stage()
    connection = line(stage)
    old = GET.replace(b"1.1", b"1.0").replace(b"host: h", b"connection: keep-alive")
    output = connection.feed(old)
    assert b"\r\nconnection: close\r\n" in output
    assert b"chunked" not in output
    stage.bodies[0].send(b"one")
    stage.bodies[0].finish(b"two")
    assert connection.pipe.take() == b"onetwo"
    assert connection.over()


def test_http_1_0_keeps_its_connection_behind_a_body_of_known_length() -> None:
    stage = set_size(Stage(), 3)
    connection = line(stage)
    old = GET.replace(b"1.1", b"1.0").replace(b"host: h", b"connection: keep-alive")
    assert b"\r\nconnection: keep-alive\r\n" in connection.feed(old)
    stage.bodies[0].finish(b"one")
    assert connection.pipe.take() == b"one"
    assert not connection.over()


def test_one_that_is_cut_ends_the_connection_and_nothing_follows_it() -> None:
    stage = set_size(Stage())
    connection = line(stage)
    connection.feed(GET + POST)
    connection.peer.cut()
    assert (stage.ends, b"next" in connection.pipe.take()) == (1, False)
    assert connection.pipe.closed


def test_a_peer_that_asked_to_close_is_closed_after_the_body() -> None:
    stage = Stage()
    connection = line(stage)
    connection.feed(GET.replace(b"host", b"connection: close\r\nhost"))
    assert not connection.over()
    stage.bodies[0].close()
    assert connection.over()


def test_a_peer_that_sends_no_more_is_taken_for_gone() -> None:
    connection = line(Stage())
    connection.feed(GET)
    assert not connection.peer.eof_received()


# -- over sockets --------------------------------------------------------------------------------------------


async def test_a_client_that_hangs_up_ends_its_body() -> None:
    stage = Stage()
    async with run_listener(stage.routes) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await until(lambda: stage.ends)
    assert stage.bodies[0].closed


async def test_a_slow_reader_is_sent_no_more_than_it_reads() -> None:
    stage = Stage()
    async with run_listener(stage.routes) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(GET)
        await until(lambda: stage.bodies)
        body, sent = stage.bodies[0], 0
        while body.writable:
            body.send(bytes(50_000))
            sent += 50_000
            await asyncio.sleep(0)
        assert sent < 50_000_000
        while not stage.offers:
            await reader.read(100_000)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
