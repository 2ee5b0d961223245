"""Calls of the sync port are watched from their beginning to their end, however they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evaluator.http.deferred import Deferred
from evaluator.http.grpc_framing import frame
from evaluator.http.messages import Call, Code, RpcError
from evaluator.http.routes import Routes
from evaluator.server.metrics import Durations, watch_calls
from tests.unit.evaluator.http.asking import VERSIONS, Asking
from tests.worlds.evaluator import FakeStream, answer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from evaluator.http.messages import MessageStream

PATH = "/flagd.sync.v1.FlagSyncService/SyncFlags"
CALL = Call(PATH, (), "127.0.0.1:1")


class Stage:
    """Routes under watch, and the ends that were reported."""

    def __init__(self, **routes: Any) -> None:
        self.begun = 0
        self.codes: list[Code] = []
        self.routes = watch_calls(Routes(**routes), self.begin)

    def begin(self, call: Call) -> Callable[[Code], None]:
        assert call.path == PATH
        self.begun += 1
        return self.codes.append


ENDS: dict[str, tuple[Callable[[Any, FakeStream], object], Code]] = {
    "well": (lambda stream, _: stream.close(), Code.OK),
    "with an error": (lambda stream, _: stream.close(Code.UNAVAILABLE, "bye"), Code.UNAVAILABLE),
    "twice": (lambda stream, _: [stream.close(Code.NOT_FOUND), stream.close()], Code.NOT_FOUND),
    "by its peer": (lambda _, below: below.hang_up(), Code.CANCELLED),
}


@pytest.mark.parametrize(("how", "code"), ENDS.values(), ids=ENDS)
def test_the_end_of_a_stream_is_reported_once(how: Any, code: Code) -> None:
    kept: list[Any] = []
    stage = Stage(streams={PATH: lambda _, __, stream: kept.append(stream)})
    below = FakeStream()
    stage.routes.streams[PATH](CALL, b"", below)
    assert (stage.begun, stage.codes) == (1, [])
    how(kept[0], below)
    assert stage.codes == [code]


def open_client(stage: Stage, version: str) -> Asking:
    client = Asking(version, stage.routes)
    sent = ("application/grpc", "application/grpc-web+proto")[version == "HTTP/1.1"]
    client.ask(PATH, frame(b""), (("content-type", sent), ("grpc-timeout", "5S")))
    return client


def fail() -> None:
    raise ValueError("a bug")


def late(client: Asking, _: MessageStream) -> None:
    client.line.wait(6)


def fail_stream(client: Asking, stream: MessageStream) -> None:
    stream.on_writable = fail
    client.line.peer.pause_writing()
    client.line.peer.resume_writing()


OURS: dict[str, tuple[Callable[[Asking, MessageStream], None], Code]] = {
    "at its deadline": (late, Code.DEADLINE_EXCEEDED),
    "by an owner that fails": (fail_stream, Code.INTERNAL),
    "as the port goes": (lambda client, _: client.line.peer.cut(), Code.UNAVAILABLE),
    "by its peer": (lambda client, _: client.line.peer.connection_lost(None), Code.CANCELLED),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("how", "code"), OURS.values(), ids=OURS)
def test_a_stream_that_its_connection_ends_is_reported_with_the_status_that_was_sent(
    version: str, how: Callable[[Asking, MessageStream], None], code: Code
) -> None:
    kept: list[MessageStream] = []
    stage, over = Stage(streams={PATH: lambda _, __, stream: kept.append(stream)}), list[Code]()
    stage.routes = watch_calls(stage.routes, lambda _: over.append)
    client = open_client(stage, version)
    how(client, kept[0])
    assert (stage.codes, over) == ([code], [code])


def test_a_stream_under_watch_is_the_stream_it_was() -> None:
    events: list[str] = []

    def open_rpc(_: Call, message: bytes, stream: Any) -> None:
        stream.on_writable = lambda: events.append("writable")
        stream.on_closed = lambda: events.append("closed")
        assert (stream.writable, stream.closed) == (True, False)
        stream.send(message)

    below = FakeStream()
    Stage(streams={PATH: open_rpc}).routes.streams[PATH](CALL, b"sent", below)
    below.read()
    below.hang_up()
    assert (below.sent, events) == ([b"sent"], ["writable", "closed"])


@pytest.mark.parametrize(("error", "code"), [(RpcError(Code.NOT_FOUND, "no"), 5), (ValueError("a bug"), 13)])
@pytest.mark.parametrize("kind", ["unary", "streams"])
def test_a_call_that_is_refused_is_reported_with_its_status(kind: str, error: Exception, code: int) -> None:
    def refuse(*_: object) -> Any:
        raise error

    stage = Stage(**{kind: {PATH: refuse}})
    with pytest.raises(type(error)):
        getattr(stage.routes, kind)[PATH](CALL, b"", *([FakeStream()] if kind == "streams" else []))
    assert stage.codes == [code]


def test_a_deferred_answer_is_reported_at_its_end() -> None:
    def answer_late() -> Generator[None, None, bytes]:
        yield
        return b"late"

    stage = Stage(unary={PATH: lambda *_: Deferred(answer_late())})
    answer = stage.routes.unary[PATH](CALL, b"")
    assert stage.codes == []
    assert (answer_of(answer), stage.codes) == (b"late", [Code.OK])


def test_durations_are_milliseconds_by_method_and_status() -> None:
    times = iter((1.0, 1.03, 2.0, 9.0))
    durations = Durations(lambda: next(times))
    for code in (Code.OK, Code.UNAVAILABLE):
        durations.begin(CALL)(code)
    family = durations.family()
    sums = {s.labels["rpc_grpc_status_code"]: s.value for s in family.samples if s.name.endswith("_sum")}
    assert sums == {"0": pytest.approx(30), "14": pytest.approx(7_000)}
    within = {
        s.labels["le"]
        for s in family.samples
        if s.value and s.labels.get("le") and s.labels["rpc_grpc_status_code"] == "0"
    }
    assert min(map(float, within)) == 50.0
    assert family.samples[0].labels["rpc_service"] == "flagd.sync.v1.FlagSyncService"
