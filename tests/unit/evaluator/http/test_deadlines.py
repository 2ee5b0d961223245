"""What a unary call's deadline ends, in every protocol: an answer that is being made, and one that has not
been begun.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.http import h2_frames
from evaluator.http.cors import Cors
from evaluator.http.deferred import Deferred, Job
from evaluator.http.grpc_framing import frame
from evaluator.http.messages import Code, Response, RpcError
from evaluator.http.peer import MOST_DEFERRED
from evaluator.http.routes import Routes
from tests.unit.evaluator.http.asking import VERSIONS, Answer, Asking
from tests.unit.evaluator.http.test_deferred import Stage
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from evaluator.http.messages import Headers

CONNECT = {"deadline_exceeded": 4, "invalid_argument": 3}


@dataclass(frozen=True)
class Spoken:
    """How one protocol calls, with a timeout of one second or another."""

    version: str
    content_type: str
    method: str = "POST"
    cors: bool = False

    def client(self, stage: Stage) -> Asking:
        return Asking(self.version, stage.routes, cors=Cors(()) if self.cors else None)

    @property
    def of_grpc(self) -> bool:
        return "grpc" in self.content_type

    def ask(self, client: Asking, timeout: str | None = None) -> Answer:
        name, second = ("grpc-timeout", "1S") if self.of_grpc else ("connect-timeout-ms", "1000")
        headers: Headers = ((name, timeout or second),)
        if self.method == "GET":
            return client.ask("/t.T/Late?encoding=json&message=%7B%7D", b"", headers, "GET")
        body = frame(b"{}") if self.of_grpc else b"{}"
        return client.ask("/t.T/Late", body, (("content-type", self.content_type), *headers))

    def code(self, answer: Answer) -> int:
        if self.content_type == "application/grpc":
            return int(answer["grpc-status"])
        found = re.search(rb"grpc-status: (\d+)|\"code\":\"(\w+)\"", answer.body)
        if found is None:
            return 0
        return int(found[1]) if found[1] else CONNECT[found[2].decode()]


PLAIN = [
    *(Spoken(version, "application/grpc-web+proto") for version in VERSIONS),
    *(Spoken(version, "application/json") for version in VERSIONS),
    *(Spoken(version, "", "GET") for version in VERSIONS),
]
SPOKEN = [Spoken("HTTP/2", "application/grpc"), *PLAIN, *(replace(each, cors=True) for each in PLAIN)]
spoken = pytest.mark.parametrize("each", SPOKEN, ids=str)


@spoken
async def test_an_answer_that_is_being_made_ends_at_the_deadline(each: Spoken) -> None:
    stage = Stage()
    stage.held = True
    client = each.client(stage)
    each.ask(client)
    await until(lambda: stage.begun)
    client.line.now += 1.5
    await until(lambda: client.read().ended)
    assert each.code(client.answer) == Code.DEADLINE_EXCEEDED
    assert stage.ended == 0


@spoken
async def test_an_answer_that_is_made_in_time_is_given(each: Spoken) -> None:
    client = each.client(Stage())
    each.ask(client)
    await until(lambda: client.read().ended)
    assert each.code(client.answer) == 0
    assert b"{}" in client.answer.body


@spoken
async def test_an_answer_whose_turn_comes_too_late_is_not_begun(each: Spoken) -> None:
    stage = Stage()
    client = each.client(stage)
    each.ask(client)
    client.line.now += 1.5
    await until(lambda: client.read().ended)
    assert (each.code(client.answer), stage.begun) == (Code.DEADLINE_EXCEEDED, 0)


@spoken
def test_no_time_at_all_is_over_before_it_begins(each: Spoken) -> None:
    stage = Stage()
    found = each.ask(each.client(stage), "0S" if each.of_grpc else "0")
    assert (found.ended, each.code(found), stage.begun) == (True, Code.DEADLINE_EXCEEDED, 0)


@spoken
def test_a_malformed_timeout_is_refused(each: Spoken) -> None:
    stage = Stage()
    found = each.ask(each.client(stage), "soon")
    expected = Code.INTERNAL if each.of_grpc else Code.INVALID_ARGUMENT
    assert (found.ended, each.code(found), stage.begun) == (True, expected, 0)


@spoken
async def test_what_a_call_waits_behind_others_of_its_connection_counts(each: Spoken) -> None:
    stage = Stage()
    stage.held = True
    client = each.client(stage)
    ahead = 1 if each.version == "HTTP/1.1" else MOST_DEFERRED
    for _ in range(ahead):
        client.ask("/late", method="GET")
    await until(lambda: stage.begun)
    each.ask(client)
    client.line.now += 1.5
    stage.held = False
    if each.version == "HTTP/1.1":
        await until(lambda: client.line.pipe.written.count(b"content-length") == 2)
        client.answer.body = bytes(client.line.pipe.take()).rpartition(b"content-length")[2]
    else:
        await until(lambda: client.read().ended)
    # It may be refused while some before it are still to be made; it is none of those that begin.
    await until(lambda: stage.ended == ahead)
    assert (each.code(client.answer), stage.begun) == (Code.DEADLINE_EXCEEDED, ahead)


async def test_a_cancelled_call_that_waited_leaves_nothing_behind() -> None:
    stage = Stage()
    stage.held = True
    client = Asking("HTTP/2", stage.routes)
    for _ in range(MOST_DEFERRED + 2):
        client.ask("/late", method="GET")
    assert client.line.peer.waiting_requests == 2
    client.line.feed(h2_frames.reset_frame(17, h2_frames.Http2ErrorCode.CANCEL))
    stage.held = False
    await until(lambda: client.read().ended)
    assert client.line.peer.waiting_requests == 0


@pytest.mark.parametrize("cors", [None, Cors(())], ids=["plain", "cors"])
async def test_what_is_pipelined_behind_a_call_that_is_too_late_is_answered_behind_it(
    cors: Cors | None,
) -> None:
    client = Asking("HTTP/1.1", Stage().routes, cors=cors)
    client.line.feed(
        b"POST /t.T/Late HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
        b"connect-timeout-ms: 1000\r\ncontent-length: 2\r\n\r\n{}"
        b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nnext"
    )
    client.line.now += 1.5
    await until(lambda: b"next" in client.line.pipe.written)
    statuses = re.findall(rb"HTTP/1.1 (\d+)", client.line.pipe.written)
    assert statuses == [b"504", b"200"]


WATCHED: dict[str, Callable[[Deferred[bytes]], Deferred[Any]]] = {
    "by one": lambda answer: answer,
    "by one below a change": lambda answer: answer.then(lambda result: len(result())),
    "by one below another": lambda answer: answer.watch(lambda _: None, lambda _: None),
}
watching = pytest.mark.parametrize("over", WATCHED.values(), ids=WATCHED)


@watching
@pytest.mark.parametrize("seconds", [5, 0], ids=["under way", "not begun"])
def test_an_observer_of_an_answer_sees_the_deadline_that_ended_it(
    over: Callable[[Deferred[bytes]], Deferred[Any]], seconds: float
) -> None:
    seen: list[BaseException] = []
    results: list[Callable[[], bytes]] = []
    now = iter(range(100))
    stage = Stage()
    answer = over(Deferred(stage.make()).watch(lambda _: None, seen.append))
    job = Job(replace(answer, seconds=seconds), lambda: next(now), results.append)
    while not job.advance():
        pass
    with pytest.raises(RpcError, match="deadline exceeded"):
        results[0]()
    assert ([type(one) for one in seen], stage.begun) == ([RpcError], seconds > 0)


@watching
@pytest.mark.parametrize("seconds", [5, None], ids=["timed", "untimed"])
def test_an_observer_of_an_answer_sees_that_its_caller_left_before_it_was_begun(
    over: Callable[[Deferred[bytes]], Deferred[Any]], seconds: float | None
) -> None:
    seen: list[BaseException] = []
    stage = Stage()
    answer = over(Deferred(stage.make()).watch(lambda _: None, seen.append))
    job = Job(replace(answer, seconds=seconds), lambda: 0, lambda _: None)
    job.cancel()
    assert ([type(one) for one in seen], stage.begun) == ([GeneratorExit], 0)


def fail_late() -> Generator[None, None, Response]:
    yield
    raise ValueError("a bug")


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_that_fails_outside_its_handler_is_500_and_the_next_comes_after_it(
    version: str,
) -> None:
    client = Asking(version, Routes(http={("GET", "/late"): lambda _: Deferred(fail_late())}))
    for _ in range(2):
        client.ask("/late", method="GET")
        await until(lambda: client.read().ended)
        assert client.answer.status == 500
