from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.flags.model import FlagSet
from evaluator.http.messages import Code, RpcError
from evaluator.server import json_rpc
from evaluator.server.event_stream import EventStreams, Run
from evaluator.store.store import Store
from tests.stores import swap
from tests.worlds.evaluator import (
    NOW,
    FakeStream,
    FakeTimers,
    ServedStore,
    call,
    in_place,
    unhurried_queue,
    version,
)
from tests.worlds.hub import BUDGET

if TYPE_CHECKING:
    from collections.abc import Callable


class EventScene(ServedStore):
    """The event streams of a store."""

    def __init__(self, *, deadline: float = 0.0, run: Run = in_place) -> None:
        super().__init__(Store())
        self.streams = EventStreams(
            self.store, self.timers, self.scheduler.queue(), deadline_seconds=deadline, run=run
        )
        self.serve(version(0))

    def open(self, *, selector: str = "", writable: bool = True) -> FakeStream:
        stream = FakeStream(writable=writable)
        self.streams.open(call((("flagd-selector", selector),)), b"", stream)
        return stream


def events(stream: FakeStream) -> list[tuple[str, Any]]:
    read = [v1.EventStreamResponse.FromString(message) for message in stream.sent]
    return [(event.type, MessageToDict(event.data)) for event in read]


def changes(stream: FakeStream) -> list[dict[str, str]]:
    return [
        {key: change["type"] for key, change in content["flags"].items()}
        for kind, content in events(stream)
        if kind == "configuration_change"
    ]


def test_a_subscriber_is_notified_at_once_that_the_provider_is_ready() -> None:
    assert events(EventScene().open()) == [("provider_ready", {})]


def test_a_change_names_each_flag_and_what_happened_to_it() -> None:
    scene = EventScene()
    scene.serve(version(0, "old"))
    stream = scene.open()
    scene.serve(version(1, "new"))
    assert changes(stream) == [{"f": "update", "new": "write", "old": "delete"}]


def test_a_slow_reader_gets_one_cumulative_change() -> None:
    scene = EventScene()
    stream = scene.open()
    stream.writable = False
    for number in range(1, 1000):
        scene.serve(version(number, f"new-{number}"))
    assert changes(stream) == []
    stream.read()
    assert changes(stream) == [{"f": "update", "new-999": "write"}]


def test_a_change_reverted_before_it_could_be_sent_is_never_sent() -> None:
    scene = EventScene()
    stream = scene.open()
    stream.writable = False
    scene.serve(version(1))
    scene.serve(version(0))
    stream.read()
    assert changes(stream) == []


def test_a_slow_reader_delays_no_other() -> None:
    scene = EventScene()
    slow, quick = scene.open(), scene.open()
    slow.writable = False
    scene.serve(version(1))
    assert changes(quick) == [{"f": "update"}]


def test_a_subscriber_that_cannot_be_greeted_yet_gets_the_changes_made_meanwhile() -> None:
    scene = EventScene()
    stream = scene.open(writable=False)
    scene.serve(version(1))
    stream.read()
    assert [kind for kind, _ in events(stream)] == ["provider_ready", "configuration_change"]


def test_all_subscribers_that_saw_the_same_get_the_same_bytes() -> None:
    scene = EventScene()
    first, second = scene.open(), scene.open()
    scene.serve(version(1))
    assert first.sent[-1] is second.sent[-1]


@pytest.mark.parametrize("again", [0, 1], ids=["same set", "only another revision"])
def test_nothing_is_sent_when_no_flag_changed(again: int) -> None:
    scene = EventScene()
    stream = scene.open()
    metadata = {"flagstaff.dev/revision": "main@sha1:2"} if again else {}
    scene.serve(FlagSet(version(0).flags, metadata={**version(0).metadata, **metadata}))
    assert len(stream.sent) == 1


def test_while_nothing_is_known_a_stream_stays_open_without_a_message() -> None:
    store, timers = Store(), FakeTimers()
    streams, stream = EventStreams(store, timers, unhurried_queue(), run=in_place), FakeStream()
    streams.open(call(), b"", stream)
    timers.advance(60)
    assert (stream.sent, stream.closed) == ([], False)
    swap(store, FlagSet(), now=NOW)
    assert [kind for kind, _ in events(stream)] == ["provider_ready"]


def test_a_stream_that_was_sent_nothing_ends_without_a_goodbye() -> None:
    streams, stream = EventStreams(Store(), FakeTimers(), unhurried_queue(), run=in_place), FakeStream()
    streams.open(call(), b"", stream)
    streams.close()
    assert (stream.sent, stream.ended) == ([], (Code.OK, ""))


def test_the_first_set_after_an_empty_start_is_all_writes() -> None:
    store = Store()
    streams = EventStreams(store, FakeTimers(), unhurried_queue(), run=in_place)
    stream = FakeStream()
    streams.open(call(), b"", stream)
    swap(store, version(0), now=NOW)
    assert changes(stream) == [{"f": "write"}]


@pytest.mark.parametrize(("selector", "count"), [("flagSetId=shop", 1), ("flagSetId=bank", 0)])
def test_a_subscriber_receives_only_changes_of_what_it_selects(selector: str, count: int) -> None:
    scene = EventScene()
    stream = scene.open(selector=selector)
    scene.serve(version(1))
    assert len(changes(stream)) == count


def test_a_bad_selector_is_refused() -> None:
    with pytest.raises(RpcError) as caught:
        EventScene().open(selector="x=y")
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_keep_alive_comes_after_twenty_silent_seconds_and_again() -> None:
    scene = EventScene()
    stream = scene.open()
    scene.timers.advance(19.9)
    assert len(stream.sent) == 1
    scene.timers.advance(0.1)
    scene.timers.advance(20)
    assert [kind for kind, _ in events(stream)] == ["provider_ready", "keep_alive", "keep_alive"]


def test_any_message_puts_the_keep_alive_off() -> None:
    scene = EventScene()
    stream = scene.open()
    scene.timers.advance(15)
    scene.serve(version(1))
    scene.timers.advance(15)
    assert len(stream.sent) == 2


def test_a_thousand_streams_share_one_timer_and_each_keeps_its_time() -> None:
    scene = EventScene()
    early = [scene.open() for _ in range(500)]
    scene.timers.advance(5)
    late = [scene.open() for _ in range(500)]
    assert len(scene.timers.pending) == 1
    scene.timers.advance(15)
    assert {len(stream.sent) for stream in early} == {2}
    assert {len(stream.sent) for stream in late} == {1}
    scene.timers.advance(5)
    assert {len(stream.sent) for stream in late} == {2}
    assert len(scene.timers.pending) == 1


def test_a_silent_stream_that_cannot_be_written_to_gets_no_keep_alive() -> None:
    scene = EventScene()
    stream = scene.open()
    stream.writable = False
    scene.timers.advance(20)
    stream.writable = True
    scene.timers.advance(20)
    assert len(stream.sent) == 2


def test_the_last_to_leave_stops_the_timer() -> None:
    scene = EventScene()
    stream = scene.open()
    stream.hang_up()
    assert scene.timers.pending == []
    scene.serve(version(1))
    assert len(stream.sent) == 1


def test_a_deadline_ends_a_stream_however_busy() -> None:
    scene = EventScene(deadline=30)
    stream = scene.open()
    for number in range(1, 7):
        assert stream.ended is None
        scene.timers.advance(5)
        if number < 6:
            scene.serve(version(number))
    assert stream.ended is not None
    assert stream.ended[0] is Code.DEADLINE_EXCEEDED


def test_without_a_deadline_a_stream_stays() -> None:
    scene = EventScene()
    stream = scene.open()
    scene.timers.advance(100_000)
    assert stream.ended is None


def test_shutdown_is_sent_to_writable_streams_and_ends_all() -> None:
    scene = EventScene()
    hearing, deaf = scene.open(), scene.open()
    deaf.writable = False
    scene.streams.close()
    assert events(hearing)[-1] == ("provider_shutdown", {})
    assert len(deaf.sent) == 1
    assert hearing.ended == deaf.ended == (Code.OK, "")
    assert scene.timers.pending == []


def test_no_stream_is_opened_during_shutdown() -> None:
    scene = EventScene()
    scene.streams.close()
    with pytest.raises(RpcError) as caught:
        scene.open()
    assert caught.value.code is Code.UNAVAILABLE


def test_a_stream_in_json_says_the_same() -> None:
    scene = EventScene()
    streams = EventStreams(
        scene.store, scene.timers, unhurried_queue(), run=in_place, encode=json_rpc.encode_event
    )
    stream = FakeStream()
    streams.open(call(), b"{}", stream)
    scene.serve(version(1))
    assert [orjson.loads(message) for message in stream.sent] == [
        {"type": "provider_ready", "data": {}},
        {"type": "configuration_change", "data": {"flags": {"f": {"type": "update"}}}},
    ]


class Threads:
    """A Run whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], bytes | None], Callable[[bytes | None], None]]] = []

    def __call__(self, work: Callable[[], bytes | None], done: Callable[[bytes | None], None]) -> None:
        self.waiting.append((work, done))

    def finish(self) -> None:
        """Do what waits, and not what comes of it."""
        for work, done in [self.waiting.pop(0) for _ in tuple(self.waiting)]:
            done(work())


MORE = tuple(f"flag-{index}" for index in range(10))


def threaded_scene() -> tuple[EventScene, Threads]:
    threads = Threads()
    scene = EventScene(run=threads)
    scene.serve(version(0, *MORE))
    return scene, threads


def test_sets_are_compared_in_a_thread_once_for_all() -> None:
    scene, threads = threaded_scene()
    streams = [scene.open() for _ in range(3)]
    scene.serve(version(1, *MORE))
    assert [len(stream.sent) for stream in streams] == [1, 1, 1]
    assert len(threads.waiting) == 1
    threads.finish()
    assert [changes(stream) for stream in streams] == [[{"f": "update"}]] * 3


def test_a_change_that_comes_while_sets_are_compared_is_sent_after_it() -> None:
    scene, threads = threaded_scene()
    stream = scene.open()
    for number in (1, 2, 3):
        scene.serve(version(number, *MORE, f"new-{number}"))
    threads.finish()
    assert changes(stream) == [{"f": "update", "new-1": "write"}]
    threads.finish()
    assert changes(stream)[1:] == [{"f": "update", "new-1": "delete", "new-3": "write"}]
    assert len(stream.sent) == 3


def test_a_stream_that_is_not_writable_when_the_sets_are_compared_is_notified_later() -> None:
    scene, threads = threaded_scene()
    stream = scene.open()
    scene.serve(version(1, *MORE))
    stream.writable = False
    threads.finish()
    assert changes(stream) == []
    stream.read()
    assert changes(stream) == [{"f": "update"}]


def test_a_stream_that_ends_while_sets_are_compared_is_sent_nothing() -> None:
    scene, threads = threaded_scene()
    stream = scene.open()
    scene.serve(version(1, *MORE))
    stream.hang_up()
    threads.finish()
    assert len(stream.sent) == 1


def test_an_old_set_is_let_go_once_everyone_is_past_it() -> None:
    scene, threads = threaded_scene()
    stream = scene.open()
    assert scene.store.snapshot is not None
    old = weakref.ref(scene.store.snapshot.compiled)
    scene.serve(version(1, *MORE))
    threads.finish()
    threads.finish()
    assert changes(stream)
    assert (threads.waiting, old()) == ([], None)


def test_many_subscribers_are_notified_a_few_at_a_time() -> None:
    scene = EventScene()
    streams = [scene.open() for _ in range(3 * BUDGET)]
    scene.serve(version(1))
    early = [stream for stream in streams if changes(stream)]
    assert len(early) == BUDGET
    scene.serve(version(2))
    scene.scheduler.run()
    # Who was early hears of both versions, everyone else of the newest alone.
    assert {len(changes(stream)) for stream in early} == {2}
    assert sum(len(changes(stream)) for stream in streams) == 4 * BUDGET
