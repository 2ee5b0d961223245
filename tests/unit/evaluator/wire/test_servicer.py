from __future__ import annotations

import asyncio
import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as v1
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as old

from evaluator.http.messages import Call, Code, RpcError, Zipped
from evaluator.wire.hub import Hub
from evaluator.wire.servicer import LARGE, SMALL, Deliver, Make, Missing, SyncService
from evaluator.wire.sync_messages import Payload
from tests.worlds.evaluator import FakeStream, FakeTimers, answer_of
from tests.worlds.hub import FakeScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

SERVICE = "/flagd.sync.v1.FlagSyncService/"
OLD = "/sync.v1.FlagSyncService/"
NOT_YET = Missing(Code.UNAVAILABLE, "not yet")
GONE = Missing(Code.NOT_FOUND, "deleted", ends_streams=True)


@dataclass
class FakeBackend:
    """Topics are the selectors themselves; the test says what each has."""

    found: dict[str, bytes | Missing] = field(default_factory=dict)
    watchers: dict[object, tuple[str, Make, Deliver]] = field(default_factory=dict)
    made: int = 0

    def topic(self, selector: str, call: Call) -> Hashable:
        if selector == "bad":
            raise RpcError(Code.INVALID_ARGUMENT, f"no such selector for {call.peer}")
        return selector

    def context(self) -> Mapping[str, Any]:
        return {"region": "eu"}

    def watch(self, topic: Hashable, make: Make, deliver: Deliver) -> Callable[[], None]:
        token = object()
        assert isinstance(topic, str)
        self.watchers[token] = (topic, make, deliver)
        self._deliver(*self.watchers[token])

        def cancel() -> None:
            del self.watchers[token]

        return cancel

    def serve(self, topic: str, found: bytes | Missing) -> None:
        self.found[topic] = found
        for watcher in tuple(self.watchers.values()):
            if watcher[0] == topic:
                self._deliver(*watcher)

    def _deliver(self, topic: str, make: Make, deliver: Deliver) -> None:
        found = self.found.get(topic)
        if isinstance(found, Missing):
            deliver(found)
        elif found is not None:
            self.made += 1
            deliver(make(found, self.context()))


def flags(number: int) -> bytes:
    return b'{"flags":{"f":{"n":%d}}}' % number


class SyncScene:
    def __init__(self, **options: Any) -> None:
        self.scheduler, self.timers, self.backend = FakeScheduler(), FakeTimers(), FakeBackend()
        self.ended: list[tuple[str, float]] = []
        self.service = SyncService(
            self.backend,
            Hub(self.scheduler.queue()),
            self.timers,
            ended=lambda reason, seconds: self.ended.append((reason, seconds)),
            **options,
        )
        self.routes = self.service.routes()

    def serve(self, found: bytes | Missing, topic: str = "") -> None:
        self.backend.serve(topic, found)
        self.scheduler.run()

    def open(
        self,
        path: str = SERVICE + "SyncFlags",
        *,
        selector: str | None = None,
        body: str = "",
        stream: FakeStream | None = None,
    ) -> FakeStream:
        stream = stream or FakeStream()
        headers = () if selector is None else (("flagd-selector", selector),)
        message = v1.SyncFlagsRequest(selector=body).SerializeToString()
        self.routes.streams[path](Call(path, headers, "peer"), message, stream)
        self.scheduler.run()
        return stream


def large(number: int, size: int) -> bytes:
    """A set of about so many bytes."""
    return b'{"flags":{"f":{"n":%d,"text":"%s"}}}' % (number, b"text" * (size // 4))


async def until_compressed(scene: SyncScene, *streams: FakeStream, number: int) -> None:
    async with asyncio.timeout(10):
        while any(numbers(stream)[-1:] != [number] for stream in streams):
            await asyncio.sleep(0.001)
            scene.scheduler.run()


def numbers(stream: FakeStream) -> list[int]:
    read = [v1.SyncFlagsResponse.FromString(message) for message in stream.sent]
    return [json.loads(each.flag_configuration)["flags"]["f"]["n"] for each in read]


@pytest.fixture
def scene() -> SyncScene:
    return SyncScene()


def test_a_stream_gets_the_flags_at_once_and_each_change(scene: SyncScene) -> None:
    scene.serve(flags(1))
    stream = scene.open()
    assert numbers(stream) == [1]
    scene.serve(flags(2))
    assert numbers(stream) == [1, 2]
    assert not stream.closed


def test_every_message_has_the_context(scene: SyncScene) -> None:
    scene.serve(flags(1))
    read = v1.SyncFlagsResponse.FromString(scene.open().sent[0])
    assert MessageToDict(read.sync_context) == {"region": "eu"}


def test_a_stream_may_come_before_its_flags(scene: SyncScene) -> None:
    scene.serve(NOT_YET)
    stream = scene.open()
    assert (stream.sent, stream.closed) == ([], False)
    scene.serve(flags(1))
    assert numbers(stream) == [1]


def test_a_slow_stream_gets_the_newest_flags_and_delays_no_other(scene: SyncScene) -> None:
    scene.serve(flags(1))
    slow, quick = scene.open(), scene.open()
    slow.writable = False
    for number in range(2, 100):
        scene.serve(flags(number))
    assert (numbers(slow), numbers(quick)) == ([1], [*range(1, 100)])
    slow.read()
    assert numbers(slow) == [1, 99]


def test_the_same_flags_again_are_no_message(scene: SyncScene) -> None:
    scene.serve(flags(1))
    stream = scene.open()
    scene.serve(bytes(bytearray(flags(1))))
    assert numbers(stream) == [1]


def test_a_message_is_made_once_for_all_and_only_with_subscribers(scene: SyncScene) -> None:
    scene.serve(flags(1))
    assert scene.backend.made == 0
    streams = [scene.open() for _ in range(5)]
    assert scene.backend.made == 1
    assert all(stream.sent[0] is streams[0].sent[0] for stream in streams)
    for stream in streams:
        stream.hang_up()
    scene.serve(flags(2))
    assert (scene.backend.made, scene.backend.watchers, scene.service.hub.topics) == (1, {}, 0)
    assert numbers(scene.open()) == [2]


def test_streams_whose_clients_take_gzip_share_one_compressed_message(scene: SyncScene) -> None:
    scene.serve(large(1, 4_000))
    streams, plain = [scene.open(stream=FakeStream(gzip=True)) for _ in range(3)], scene.open()
    scene.serve(large(2, 4_000))
    assert all(numbers(stream) == [1, 2] for stream in (*streams, plain))
    assert [len(stream.zipped) for stream in (*streams, plain)] == [2, 2, 2, 0]
    assert all(stream.zipped[0] is streams[0].zipped[0] for stream in streams)
    assert scene.backend.made == 2


def test_nothing_is_compressed_without_streams_that_take_it(
    scene: SyncScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed: list[object] = []
    compressobj = zlib.compressobj

    def compress(*settings: Any) -> object:
        compressed.append(settings)
        return compressobj(*settings)

    monkeypatch.setattr(zlib, "compressobj", compress)
    plain = scene.open()
    scene.serve(large(1, 4_000))
    stream = scene.open(stream=FakeStream(gzip=True))
    assert len(compressed) == 1
    stream.hang_up()
    scene.serve(large(2, 4_000))
    assert (len(compressed), numbers(plain), scene.service.hub.topics) == (1, [1, 2], 1)
    plain.hang_up()
    assert (scene.backend.watchers, scene.service.hub.topics) == ({}, 0)


def test_a_small_message_stays_plain(scene: SyncScene) -> None:
    stream = scene.open(stream=FakeStream(gzip=True))
    scene.serve(flags(1))
    scene.serve(large(2, SMALL))
    scene.serve(flags(3))
    assert (numbers(stream), len(stream.zipped)) == ([1, 2, 3], 1)


def test_a_stream_that_takes_gzip_learns_that_its_flags_are_gone(scene: SyncScene) -> None:
    scene.serve(large(1, 4_000))
    stream, fetching = scene.open(stream=FakeStream(gzip=True)), FakeStream(gzip=True)
    scene.serve(GONE)
    assert stream.ended == (GONE.code, GONE.message)
    scene.open(SERVICE + "FetchAllFlags", stream=fetching)
    assert fetching.ended == (GONE.code, GONE.message)
    assert (scene.backend.watchers, scene.service.hub.topics) == ({}, 0)


async def test_a_large_message_is_compressed_beside_the_loop_and_the_newest_follows(scene: SyncScene) -> None:
    stream, plain = scene.open(stream=FakeStream(gzip=True)), scene.open()
    for number in (1, 2, 3):
        scene.serve(large(number, 2 * LARGE))
    assert (numbers(stream), numbers(plain)) == ([], [1, 2, 3])
    await until_compressed(scene, stream, number=3)
    assert numbers(stream) in ([3], [1, 3])


async def test_what_was_compressed_before_the_flags_went_is_not_sent_after(scene: SyncScene) -> None:
    stream = scene.open(stream=FakeStream(gzip=True))
    scene.serve(large(1, 2 * LARGE))
    scene.serve(NOT_YET)
    scene.serve(large(2, 2 * LARGE))
    await until_compressed(scene, stream, number=2)
    assert numbers(stream) == [2]


async def test_what_earlier_streams_left_uncompressed_is_not_sent_to_later_ones(scene: SyncScene) -> None:
    scene.serve(large(1, 2 * LARGE))
    scene.open(stream=FakeStream(gzip=True)).hang_up()
    scene.serve(large(2, 2 * LARGE))
    later = scene.open(stream=FakeStream(gzip=True))
    await until_compressed(scene, later, number=2)
    await asyncio.sleep(0.05)
    scene.scheduler.run()
    assert numbers(later) == [2]


@pytest.mark.parametrize(
    ("header", "body", "topic"),
    [(None, "", ""), (None, "b", "b"), ("h", "", "h"), ("h", "b", "h"), ("", "b", "")],
)
def test_the_header_wins_over_the_body(scene: SyncScene, header: str | None, body: str, topic: str) -> None:
    for number, name in enumerate(("", "b", "h")):
        scene.serve(flags(number), name)
    stream = scene.open(selector=header, body=body)
    assert numbers(stream) == [["", "b", "h"].index(topic)]


def test_a_change_reaches_its_subscribers(scene: SyncScene) -> None:
    one, other = scene.open(selector="a"), scene.open(selector="b")
    scene.serve(flags(1), "a")
    assert (numbers(one), numbers(other)) == ([1], [])


@pytest.mark.parametrize("method", ["SyncFlags", "FetchAllFlags"])
@pytest.mark.parametrize("service", [SERVICE, OLD])
def test_a_refused_selector_leaves_nothing_behind(scene: SyncScene, service: str, method: str) -> None:
    with pytest.raises(RpcError, match="no such selector for peer"):
        scene.open(service + method, selector="bad")
    assert (scene.service.streams, scene.backend.watchers, scene.service.hub.topics) == (0, {}, 0)


@pytest.mark.parametrize("service", [SERVICE, OLD])
def test_fetching_answers_once_and_ends(scene: SyncScene, service: str) -> None:
    scene.serve(flags(1))
    stream = scene.open(service + "FetchAllFlags")
    read = v1.FetchAllFlagsResponse.FromString(stream.sent[0])
    assert (read.flag_configuration, stream.ended) == (flags(1).decode(), (Code.OK, ""))
    assert (scene.backend.watchers, scene.service.hub.topics, scene.ended) == ({}, 0, [])


def test_fetching_waits_for_flags_that_are_being_made(scene: SyncScene) -> None:
    stream = scene.open(SERVICE + "FetchAllFlags")
    assert not stream.closed
    scene.serve(flags(1))
    assert (len(stream.sent), stream.ended) == (1, (Code.OK, ""))


@pytest.mark.parametrize("missing", [NOT_YET, GONE])
def test_fetching_flags_that_are_not_there_is_an_error_and_no_empty_set(
    scene: SyncScene, missing: Missing
) -> None:
    scene.serve(missing)
    stream = scene.open(SERVICE + "FetchAllFlags")
    assert (stream.sent, stream.ended) == ([], (missing.code, missing.message))
    assert (scene.backend.watchers, scene.service.hub.topics) == ({}, 0)


def test_the_old_service_says_that_a_message_is_everything(scene: SyncScene) -> None:
    scene.serve(flags(1))
    read = old.SyncFlagsResponse.FromString(scene.open(OLD + "SyncFlags").sent[0])
    assert (read.state, read.flag_configuration) == (old.SYNC_STATE_ALL, flags(1).decode())


def test_streams_stay_at_what_they_have_while_their_flags_are_away(scene: SyncScene) -> None:
    scene.serve(flags(1))
    stream = scene.open()
    scene.serve(NOT_YET)
    assert (numbers(stream), stream.closed) == ([1], False)
    scene.serve(flags(2))
    assert numbers(stream) == [1, 2]


def test_streams_end_with_their_flags_where_the_backend_says_so(scene: SyncScene) -> None:
    scene.serve(flags(1))
    stream = scene.open()
    scene.serve(GONE)
    assert (numbers(stream), stream.ended) == ([1], (Code.NOT_FOUND, "deleted"))
    assert (scene.service.streams, scene.backend.watchers) == (0, {})


def test_a_stream_that_comes_after_its_flags_went_waits_for_them(scene: SyncScene) -> None:
    scene.serve(GONE)
    stream = scene.open()
    assert (numbers(stream), stream.ended) == ([], None)
    scene.serve(flags(2))
    assert (numbers(stream), stream.ended) == ([2], None)


def test_a_stream_that_fails_is_ended_alone(scene: SyncScene, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeStream):
        def send(self, message: bytes | Zipped) -> bool:
            raise RuntimeError("a fault of ours")

    broken, fine = scene.open(stream=Broken()), scene.open()
    scene.serve(flags(1))
    assert (broken.ended, numbers(fine)) == ((Code.INTERNAL, "internal error"), [1])
    assert scene.open(stream=Broken()).ended == (Code.INTERNAL, "internal error")
    assert scene.service.streams == 1
    assert [record.message for record in caplog.records] == ["a sync stream failed"] * 2


def test_a_stream_ends_by_its_deadline() -> None:
    scene = SyncScene(deadline_seconds=60)
    scene.serve(flags(1))
    early, stream = scene.open(), scene.open()
    early.hang_up()
    scene.timers.advance(61)
    assert (early.ended, stream.ended) == (
        None,
        (Code.DEADLINE_EXCEEDED, "stream closed due to server-side timeout"),
    )
    assert numbers(stream) == [1]
    assert scene.ended == [("normal_close", 0.0), ("deadline_exceeded", 60.0)]


def test_shutting_down_sends_clients_elsewhere(scene: SyncScene) -> None:
    scene.serve(flags(1))
    streams = [scene.open(), scene.open(selector="none yet"), scene.open(OLD + "SyncFlags")]
    scene.service.close()
    assert [stream.ended for stream in streams] == [(Code.UNAVAILABLE, "shutting down")] * 3
    assert (scene.service.streams, scene.backend.watchers) == (0, {})
    with pytest.raises(RpcError, match="shutting down"):
        scene.open()


def test_a_client_that_hangs_up_is_forgotten(scene: SyncScene) -> None:
    stream = scene.open()
    scene.timers.advance(2)
    stream.hang_up()
    scene.serve(flags(1))
    assert (stream.sent, scene.service.streams) == ([], 0)
    assert scene.ended == [("normal_close", 2.0)]


def test_metadata_is_the_context_unless_disabled(scene: SyncScene) -> None:
    path = SERVICE + "GetMetadata"
    answer = scene.routes.unary[path](Call(path, (), ""), b"")
    assert MessageToDict(v1.GetMetadataResponse.FromString(answer_of(answer))) == {
        "metadata": {"region": "eu"}
    }
    with pytest.raises(RpcError) as refused:
        SyncScene(metadata=False).routes.unary[path](Call(path, (), ""), b"")
    assert refused.value.code is Code.UNIMPLEMENTED


def test_a_payload_knows_its_content(scene: SyncScene) -> None:
    scene.serve(flags(1))
    scene.open()
    _, make, _ = next(iter(scene.backend.watchers.values()))
    first, second = make(flags(1), {}), make(flags(1), {})
    assert isinstance(first, Payload)
    assert first == second != make(flags(2), {})
