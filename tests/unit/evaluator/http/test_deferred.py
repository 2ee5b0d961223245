"""Answers that are deferred: made in slices, in their order, and for nobody once the peer is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from evaluator.http import h2_frames
from evaluator.http.deferred import Deferred, Wait, at_once
from evaluator.http.h2_frames import END_HEADERS, END_STREAM
from evaluator.http.hpack import encode_block
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.messages import Call, Code, Request, Response, RpcError
from evaluator.http.peer import MOST_DEFERRED
from evaluator.http.routes import Routes
from evaluator.http.scheduler import FairQueue
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.unit.evaluator.http.serving import Line, exchange, post, run_listener
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

HEADERS = (("content-type", "application/json"),)


class Stage:
    """Routes whose answers take as many steps as they are let, or all that they take at once."""

    def __init__(self, error: Exception | None = None, steps: int = 50) -> None:
        self.begun = self.ended = self.left = 0
        self.held = False
        self._error, self._steps = error, steps
        self.routes = Routes(
            unary={"/t.T/Late": self.unary},
            json_unary={"/t.T/Late": self.unary},
            idempotent=frozenset({"/t.T/Late"}),
            http={("GET", "/late"): self.plain, ("POST", "/"): post},
        )

    def plain(self, _: Request) -> Deferred[Response]:
        return Deferred(self.response())

    def response(self) -> Generator[None, None, Response]:
        return Response(200, (yield from self.make()), HEADERS)

    def unary(self, _: Call, message: bytes) -> Deferred[bytes]:
        return Deferred(self.make(message))

    def make(self, answer: bytes = b"late") -> Generator[None, None, bytes]:
        self.begun += 1
        try:
            for _ in range(self._steps):
                yield
            while self.held:
                yield
        except GeneratorExit:
            self.left += 1
            raise
        if self._error is not None:
            raise self._error
        self.ended += 1
        return answer


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_an_answer_comes_whole_once_it_is_made(version: str) -> None:
    stage = Stage()
    client = Asking(version, stage.routes)
    assert client.ask("/late", method="GET").status == 0
    await until(lambda: client.read().ended)
    assert (client.answer.status, client.answer.body) == (200, b"late")
    assert client.answer["content-type"] == "application/json"


async def test_head_has_the_length_and_no_body(version: str) -> None:
    client = Asking(version, Stage().routes)
    client.ask("/late", method="HEAD")
    await until(lambda: client.read().status)
    assert (client.answer["content-length"], client.answer.body) == ("4", b"")


async def test_a_failure_on_the_way_is_answered_500(version: str) -> None:
    client = Asking(version, Stage(ValueError("a bug")).routes)
    client.ask("/late", method="GET")
    await until(lambda: client.read().ended)
    assert client.answer.status == 500


ENCODINGS = ["application/json", "application/proto", "application/grpc-web+proto"]


@pytest.mark.parametrize("content_type", ENCODINGS)
@pytest.mark.parametrize("error", [None, RpcError(Code.NOT_FOUND, "no"), ValueError("a bug")])
async def test_calls_are_deferred_in_every_protocol(
    version: str, content_type: str, error: Exception | None
) -> None:
    web = "web" in content_type
    message = b"\0\0\0\0\x02{}" if web else b"{}"
    client = Asking(version, Stage(error).routes)
    client.ask("/t.T/Late", message, (("content-type", content_type),))
    await until(lambda: client.read().ended)
    status = {"NoneType": (200, b"0"), "RpcError": (404, b"5"), "ValueError": (500, b"13")}
    http, grpc_status = status[type(error).__name__]
    assert client.answer.status == (200 if web else http)
    assert not web or b"grpc-status: " + grpc_status in client.answer.body
    assert client.answer.body.startswith(message) is (error is None)


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    stage = Stage()
    ask = b"GET /late HTTP/1.1\r\nhost: h\r\n\r\n"
    echo = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\n"
    last = b"POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 1\r\n\r\n3"
    async with run_listener(stage.routes) as (_, port):
        answer = await exchange(port, echo + b"1" + ask + echo + b"2" + ask + last)
    bodies = [part.partition(b"HTTP")[0] for part in answer.split(b"\r\n\r\n")[1:]]
    assert bodies == [b"1", b"late", b"2", b"late", b"3"]


async def test_a_client_that_has_half_closed_is_answered() -> None:
    async with run_listener(Stage(steps=5_000).routes) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /late HTTP/1.1\r\nhost: h\r\n\r\n")
        writer.write_eof()
        assert (await reader.read()).endswith(b"late")
        writer.close()


async def test_an_answer_is_not_made_to_its_end_for_a_peer_that_is_gone(version: str) -> None:
    stage = Stage()
    stage.held = True
    client = Asking(version, stage.routes)
    client.ask("/late", method="GET")
    await until(lambda: stage.begun)
    client.line.peer.connection_lost(None)
    assert (stage.left, stage.ended) == (1, 0)
    await asyncio.sleep(0)
    assert client.read().status == 0


async def test_others_are_answered_between_the_steps() -> None:
    stage = Stage()
    stage.held = True
    slow, other = Asking("HTTP/2", stage.routes), Asking("HTTP/1.1", stage.routes)
    slow.ask("/late", method="GET")
    await until(lambda: stage.begun)
    assert other.ask("/", b"now").body == b"now"
    stage.held = False
    await until(lambda: slow.read().ended)


async def call(channel: grpc.aio.Channel, message: bytes) -> Any:
    method: Any = channel.unary_unary("/t.T/Late", None, None)
    return await method(message, timeout=20)


async def test_a_stock_client_gets_deferred_answers_and_errors_of_many_calls_at_once() -> None:
    well, ill = Stage(), Stage(RpcError(Code.NOT_FOUND, "no"))
    for stage in (well, ill):
        async with (
            run_listener(stage.routes) as (_, port),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            asked = [call(channel, b"%d" % number) for number in range(100)]
            found = await asyncio.gather(*asked, return_exceptions=True)
        if stage is well:
            assert found == [b"%d" % number for number in range(100)]
        else:
            assert {one.code() for one in found} == {grpc.StatusCode.NOT_FOUND}  # type: ignore[union-attr] # AioRpcErrors


async def test_one_connection_has_few_under_way_and_whatever_is_cancelled_makes_room() -> None:
    stage = Stage()
    stage.held = True
    line = Line(Http2Peer, routes=stage.routes)
    head = encode_block([(":method", "GET"), (":scheme", "http"), (":path", "/late")])
    ask = [wire.headers_frame(each, head, END_HEADERS | END_STREAM) for each in range(1, 40, 2)]
    line.feed(wire.GREETING, *ask)
    assert (line.peer.deferred_streams, line.peer.waiting_requests) == ([1, 3, 5, 7, 9, 11, 13, 15], 12)
    line.feed(*(h2_frames.reset_frame(each, h2_frames.Http2ErrorCode.CANCEL) for each in (1, 3)))
    assert len(line.peer.deferred_streams) == MOST_DEFERRED
    stage.held = False
    await until(lambda: stage.ended == 18)


async def test_what_is_under_way_is_answered_while_the_port_drains() -> None:
    stage = Stage(steps=2_000)
    async with run_listener(stage.routes) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /late HTTP/1.1\r\nhost: h\r\n\r\n")
        await until(lambda: stage.begun)
        drained = asyncio.create_task(listener.drain(10))
        assert (await reader.read()).endswith(b"late")
        writer.close()
        await drained


async def test_a_slow_answer_is_no_idle_connection() -> None:
    stage = Stage()
    stage.held = True
    line = Line(Http1Peer, routes=stage.routes)
    line.feed(b"GET /late HTTP/1.1\r\nhost: h\r\n\r\n")
    await until(lambda: stage.begun)
    line.wait(1_000)
    assert not line.over()
    stage.held = False
    await until(lambda: stage.ended)
    assert line.pipe.take().endswith(b"late")


async def turns(condition: Callable[[], bool]) -> None:
    """Let the loop run, a turn at a time, until `condition` holds."""
    while not condition():  # noqa: ASYNC110 - turns are what is counted
        await asyncio.sleep(0)


class Steps:
    """A task of so many steps, each a tick of the clock."""

    def __init__(self, clock: Iterator[int], steps: int) -> None:
        self.left, self.turns = steps, 0
        self._clock = clock

    def run(self, until: float) -> bool:
        self.turns += 1
        self.left -= 1
        while self.left and next(self._clock) / 10_000 < until:
            self.left -= 1
        return self.left > 0


async def test_tasks_take_turns_as_long_as_the_clock_says() -> None:
    ticks = iter(range(1_000_000))
    queue = FairQueue(stopwatch=lambda: next(ticks) / 10_000)
    many, few = Steps(ticks, 1_000), Steps(ticks, 5)
    queue.put(many.run)
    queue.put(few.run)
    await turns(lambda: not few.left)
    assert many.left > 900
    await turns(lambda: not many.left)
    assert 90 < many.turns < 140


async def test_a_task_that_fails_keeps_no_other_from_its_turn() -> None:
    def fail(until: float) -> bool:
        raise OSError("a bug")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    queue, sound = FairQueue(), Steps(iter(range(100)), 3)
    queue.put(fail)
    queue.put(sound.run)
    await until(lambda: not sound.left)
    assert len(reported) == 1


async def test_a_connection_with_many_deferred_answers_has_one_turn_among_others() -> None:
    stage = Stage(steps=20)
    head = encode_block([(":method", "GET"), (":scheme", "http"), (":path", "/late")])
    ask = [wire.headers_frame(each, head, END_HEADERS | END_STREAM) for each in range(1, 16, 2)]
    line = Line(Http2Peer, routes=stage.routes)
    ticks = iter(range(1_000_000))
    line.port.queue = queue = FairQueue(stopwatch=lambda: next(ticks) / 10_000)
    line.feed(wire.GREETING, *ask)
    other = Steps(ticks, 5)
    queue.put(other.run)
    await turns(lambda: not other.left)
    assert stage.ended < MOST_DEFERRED
    await until(lambda: stage.ended == MOST_DEFERRED)


def test_few_steps_are_taken_at_once() -> None:
    assert at_once(Stage().make(b"a")) == b"a"


class Waiting:
    """Routes with an answer that waits until `resume`, if it is given, is called."""

    def __init__(self) -> None:
        self.resume: Callable[[], None] | None = None
        self.closed = False
        self.routes = Routes(http={("GET", "/late"): lambda _: Deferred(self.steps())})

    def steps(self) -> Generator[Wait | None, None, Response]:
        try:
            yield None
            yield self.wait
        except GeneratorExit:
            self.closed = True
            raise
        return Response(404, b"waited")

    def wait(self, resume: Callable[[], None]) -> None:
        self.resume = resume


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_that_waits_goes_on_once_its_wait_is_over(version: str) -> None:
    waiting = Waiting()
    asking = Asking(version, waiting.routes)
    asking.ask("/late", method="GET")
    await until(lambda: waiting.resume is not None)
    assert not asking.read().ended
    assert waiting.resume is not None
    waiting.resume()
    await until(lambda: asking.read().ended)
    assert (asking.answer.status, asking.answer.body) == (404, b"waited")


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_that_waits_is_given_up_with_its_connection(version: str) -> None:
    waiting = Waiting()
    asking = Asking(version, waiting.routes)
    asking.ask("/late", method="GET")
    await until(lambda: waiting.resume is not None)
    asking.line.peer.connection_lost(None)
    assert waiting.closed
    assert waiting.resume is not None
    waiting.resume()
