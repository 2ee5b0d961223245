"""A connection that asks for much at once has its answers a turn of the loop at a time, and others have
theirs in between.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from evaluator.http.h2_frames import END_HEADERS, END_STREAM
from evaluator.http.hpack import encode_block
from evaluator.http.messages import Response
from evaluator.http.peer import LARGE_READ_BYTES
from evaluator.http.routes import Routes
from evaluator.http.scheduler import BUDGET_SECONDS
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.unit.evaluator.http.wire import data_frame, headers_frame

if TYPE_CHECKING:
    from evaluator.http.messages import Request


class BusyConnection:
    """A connection whose every request takes two fifths of a turn."""

    def __init__(self, version: str) -> None:
        self.asked: list[str] = []
        self.waited: list[float] = []
        self.client = Asking(version, Routes(http={("GET", "/*"): self.answer}))
        self.line = self.client.line

    def answer(self, request: Request) -> Response:
        self.asked.append(request.path)
        self.waited.append(request.waited)
        self.line.spent += 0.4 * BUDGET_SECONDS
        self.line.now += 1.0
        return Response(200, request.path.encode())

    def ask(self, count: int) -> None:
        """So many requests in one read."""
        kind = heads if self.client.version == "HTTP/2" else lines
        self.line.peer.data_received(b"".join(kind(number) for number in range(count)))

    def count_answered(self) -> int:
        return self.line.pipe.take().count(b"/at/")


def lines(number: int) -> bytes:
    return f"GET /at/{number} HTTP/1.1\r\nhost: h\r\n\r\n".encode()


def heads(number: int) -> bytes:
    path = f"/at/{number}"
    head = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "h")]
    return headers_frame(2 * number + 1, encode_block(head), END_HEADERS | END_STREAM)


@pytest.fixture(params=VERSIONS)
def scene(request: pytest.FixtureRequest) -> BusyConnection:
    return BusyConnection(str(request.param))


async def test_what_takes_longer_than_a_turn_goes_on_in_the_next(scene: BusyConnection) -> None:
    scene.ask(10)
    turns = [scene.count_answered()]
    while turns[-1]:
        await asyncio.sleep(0)
        turns.append(scene.count_answered())
    assert turns == [3, 3, 3, 1, 0]
    assert scene.asked == [f"/at/{number}" for number in range(10)]


async def test_others_are_answered_between_the_turns(scene: BusyConnection) -> None:
    scene.ask(10)
    other = BusyConnection("HTTP/1.1")
    asyncio.get_running_loop().call_soon(other.ask, 1)
    await asyncio.sleep(0)
    assert (len(scene.asked), other.count_answered()) == (6, 1)


async def test_how_long_a_request_waited_for_its_turn_counts(scene: BusyConnection) -> None:
    scene.ask(4)
    await asyncio.sleep(0)
    assert scene.waited == [0.0, 0.0, 0.0, 3.0]


async def test_nothing_more_is_read_until_all_is_answered(scene: BusyConnection) -> None:
    scene.ask(4)
    reading = [scene.line.pipe.reading]
    await asyncio.sleep(0)
    assert [*reading, scene.line.pipe.reading] == [False, True]
    assert len(scene.asked) == 4


async def test_what_a_peer_that_does_not_read_asked_for_waits_for_it_and_not_for_a_turn(
    scene: BusyConnection,
) -> None:
    scene.line.pipe.fills_after = 1
    scene.ask(10)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(scene.asked) == 3
    scene.line.peer.resume_writing()
    assert len(scene.asked) == 6


async def test_what_waits_for_its_turn_goes_with_the_connection(scene: BusyConnection) -> None:
    scene.ask(10)
    scene.line.pipe.closed = True
    scene.line.peer.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(scene.asked) == 3


async def test_a_read_of_many_requests_is_parsed_a_piece_at_a_time(scene: BusyConnection) -> None:
    scene.ask(200)
    peer = scene.line.peer
    while scene.line.pipe.take():
        assert peer.waiting_requests < 150
        await asyncio.sleep(0)
    assert len(scene.asked) == 200


async def test_a_large_read_is_not_answered_before_its_turn(scene: BusyConnection) -> None:
    scene.ask(2_000)
    assert not scene.asked
    await asyncio.sleep(0)
    assert scene.asked


def bodies(version: str) -> bytes:
    """As much of a body as one read takes."""
    if version == "HTTP/1.1":
        return b"POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 900000\r\n\r\n" + bytes(LARGE_READ_BYTES)
    head = [(":method", "POST"), (":scheme", "http"), (":path", "/body"), (":authority", "h")]
    return headers_frame(1, encode_block(head), END_HEADERS) + data_frame(1, bytes(16_000), 0) * 9


@pytest.mark.parametrize("ended", [False, True])
async def test_after_a_full_read_the_next_one_waits_for_a_turn(scene: BusyConnection, ended: bool) -> None:
    if ended:
        scene.line.peer.finish()
    scene.line.peer.data_received(bodies(scene.client.version))
    reading = [scene.line.pipe.reading]
    await asyncio.sleep(0)
    assert [*reading, scene.line.pipe.reading] == [False, True]


async def test_large_pieces_give_a_body_no_more_time() -> None:
    line = Asking("HTTP/1.1", Routes(http={("POST", "/*"): lambda _: Response(200, b"")})).line
    line.peer.data_received(b"POST /body HTTP/1.1\r\nhost: h\r\ncontent-length: 900000\r\n\r\n")
    answers = b""
    for _ in range(3):
        answers += line.wait(2.0)
        line.peer.data_received(bytes(LARGE_READ_BYTES))
        await asyncio.sleep(0)
    assert answers.startswith(b"HTTP/1.1 408 ")


async def test_a_peer_that_sends_no_more_is_answered_all_that_it_asked() -> None:
    scene = BusyConnection("HTTP/1.1")
    scene.ask(1_000)
    assert scene.line.peer.eof_received()
    for _ in range(400):
        await asyncio.sleep(0)
    assert len(scene.asked) == 1_000
    assert scene.line.over()
