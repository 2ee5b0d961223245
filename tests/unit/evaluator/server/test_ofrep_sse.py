from __future__ import annotations

from typing import Any

import orjson
import pytest

from evaluator.http.messages import Request, Response, Streamed, header
from evaluator.server.service import Selection
from evaluator.server.sse import KEEP_ALIVE_SECONDS, PATH, ChangeStreams
from evaluator.store.store import Store
from tests.stores import swap
from tests.worlds.evaluator import (
    NOW,
    FakeStream,
    FakeTimers,
    ServedStore,
    flag_set,
    unhurried_queue,
    version,
)
from tests.worlds.hub import BUDGET

KEEP_ALIVE = b":\n\n"


class FakeBody(FakeStream):
    """A ByteStream whose peer reads only when the test says so."""

    def finish(self, last: bytes = b"") -> None:
        """Not used here."""

    def break_off(self) -> None:
        self.close()


class ChangeScene(ServedStore):
    """The change streams of a store."""

    def __init__(self) -> None:
        super().__init__(Store(sources=("git",)))
        self.streams = ChangeStreams(self.store, self.timers, self.scheduler.queue())
        self.serve(version(0))

    @property
    def digest(self) -> str:
        assert self.store.snapshot is not None
        return self.store.snapshot.digest

    def ask(self, selector: str = "", **headers: str) -> Response | Streamed:
        sent = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return self.streams.open(Request("GET", PATH + selector, "", sent, b"", "127.0.0.1:1"))

    def open(self, selector: str = "", **headers: str) -> FakeBody:
        body = FakeBody()
        answer = self.ask(selector, **headers)
        assert isinstance(answer, Streamed)
        answer.start(body)
        return body


def events(body: FakeBody) -> list[tuple[str, dict[str, Any]]]:
    """(id, content) of each message, read as https://html.spec.whatwg.org/multipage/server-sent-events.html
    says.
    """
    found = []
    for block in b"".join(body.sent).decode().split("\n\n"):
        fields = dict(line.split(":", 1) for line in block.splitlines() if line)
        if "data" in fields:
            assert fields["event"] == " message"
            found.append((fields["id"].strip(), orjson.loads(fields["data"])))
    return found


def test_the_response_is_an_event_stream_that_nobody_stores_or_buffers() -> None:
    answer = ChangeScene().ask()
    assert isinstance(answer, Streamed)
    assert answer.status == 200
    assert header(answer.headers, "content-type") == "text/event-stream"
    assert header(answer.headers, "cache-control") == "no-store"


def test_a_client_that_saw_nothing_yet_is_sent_a_change_at_once() -> None:
    scene = ChangeScene()
    content = {"type": "refetchEvaluation", "etag": scene.digest, "lastModified": int(NOW)}
    assert events(scene.open()) == [(scene.digest, content)]


def test_while_nothing_is_known_a_stream_stays_open_without_an_event() -> None:
    store = Store(sources=("git",))
    streams, bodies = ChangeStreams(store, FakeTimers(), unhurried_queue()), [FakeBody(), FakeBody()]
    for body, last in zip(bodies, ((), (("last-event-id", "sha256:old"),)), strict=True):
        answer = streams.open(Request("GET", PATH, "", last, b"", "127.0.0.1:1"))
        assert isinstance(answer, Streamed)
        answer.start(body)
        assert events(body) == []
    swap(store, version(0), now=NOW)
    assert store.snapshot is not None
    assert [[identity for identity, _ in events(body)] for body in bodies] == [[store.snapshot.digest]] * 2


def test_a_client_that_saw_what_is_served_is_sent_only_the_retry_time() -> None:
    scene = ChangeScene()
    body = scene.open(last_event_id=scene.digest)
    assert events(body) == []
    assert body.sent == [b"retry: 1100\n\n"]


def test_a_client_that_missed_a_change_is_notified_at_once() -> None:
    scene = ChangeScene()
    seen = scene.digest
    scene.serve(version(1))
    assert [digest for digest, _ in events(scene.open(last_event_id=seen))] == [scene.digest]


def test_each_change_is_sent_once_and_an_update_without_a_change_is_not() -> None:
    scene = ChangeScene()
    body = scene.open(last_event_id=scene.digest)
    scene.serve(version(1))
    first = scene.digest
    scene.serve(version(1))
    scene.serve(version(2))
    assert [digest for digest, _ in events(body)] == [first, scene.digest]


def test_a_slow_reader_gets_the_newest_only() -> None:
    scene = ChangeScene()
    body = scene.open(last_event_id=scene.digest)
    body.writable = False
    for number in range(1, 1000):
        scene.serve(version(number))
    body.read()
    body.read()
    assert [digest for digest, _ in events(body)] == [scene.digest]


def test_a_slow_reader_gets_nothing_when_the_change_was_reverted() -> None:
    scene = ChangeScene()
    body = scene.open(last_event_id=scene.digest)
    body.writable = False
    scene.serve(version(1))
    scene.serve(version(0))
    body.read()
    assert events(body) == []


@pytest.mark.parametrize(
    ("path", "headers", "notified"),
    [
        ("/flagSetId=shop", {}, True),
        ("/git", {}, True),
        ("/", {}, True),
        ("", {"flagd_selector": "flagSetId=shop"}, True),
        ("/flagSetId=bank", {}, False),
        ("", {"flagd_selector": "flagSetId=bank"}, False),
        ("/flagSetId=shop", {"flagd_selector": "flagSetId=bank"}, True),
    ],
)
def test_a_selector_narrows_the_changes_that_are_sent(
    path: str, headers: dict[str, str], notified: bool
) -> None:
    scene = ChangeScene()
    body = scene.open(path, **headers)
    before = len(events(body))
    scene.serve(version(1))
    assert (len(events(body)) > before) is notified


def test_a_client_is_notified_when_its_flags_go_and_forgets_its_place() -> None:
    scene = ChangeScene()
    body = scene.open("/flagSetId=shop", last_event_id=scene.digest)
    scene.serve(flag_set())
    assert events(body) == [("", {"type": "refetchEvaluation"})]


def test_a_bad_selector_is_refused() -> None:
    answer = ChangeScene().ask("/colour=red")
    assert isinstance(answer, Response)
    assert answer.status == 400
    assert b'invalid selector key \\"colour\\"' in answer.body


def test_silence_is_broken_by_a_comment() -> None:
    scene = ChangeScene()
    body = scene.open()
    scene.timers.advance(KEEP_ALIVE_SECONDS)
    scene.timers.advance(KEEP_ALIVE_SECONDS)
    assert body.sent[1:] == [KEEP_ALIVE, KEEP_ALIVE]


def test_a_client_that_does_not_read_gets_no_comment_until_it_does() -> None:
    scene = ChangeScene()
    body = scene.open()
    body.writable = False
    scene.timers.advance(KEEP_ALIVE_SECONDS)
    body.writable = True
    scene.timers.advance(KEEP_ALIVE_SECONDS)
    assert body.sent[1:] == [KEEP_ALIVE]


def test_a_client_that_hung_up_is_forgotten() -> None:
    scene = ChangeScene()
    body = scene.open()
    body.hang_up()
    scene.serve(version(1))
    assert len(events(body)) == 1
    assert scene.timers.pending == []


def test_shutting_down_ends_streams_and_refuses_new_ones() -> None:
    scene = ChangeScene()
    body = scene.open()
    scene.streams.close()
    scene.serve(version(1))
    assert body.closed
    assert len(events(body)) == 1
    refused = scene.ask()
    assert isinstance(refused, Response)
    assert refused.status == 503


def test_clients_that_lose_us_together_come_back_apart() -> None:
    scene = ChangeScene()
    waits = {scene.open().sent[0].splitlines()[0] for _ in range(40)}
    assert len(waits) == 20


def test_many_are_notified_a_few_in_each_turn_of_the_loop() -> None:
    scene = ChangeScene()
    bodies = [scene.open(last_event_id=scene.digest) for _ in range(2 * BUDGET + 1)]
    scene.serve(version(1))
    waiting = [body for body in bodies if not events(body)]
    assert len(waiting) == BUDGET + 1
    scene.serve(version(2))
    scene.scheduler.run()
    assert all([digest for digest, _ in events(body)] == [scene.digest] for body in waiting)
    assert all(events(body)[-1][0] == scene.digest for body in bodies)


def test_a_waiting_client_may_hang_up_and_shutting_down_ends_the_turns() -> None:
    scene = ChangeScene()
    bodies = [scene.open(last_event_id=scene.digest) for _ in range(BUDGET + 2)]
    scene.serve(version(1))
    waiting = [body for body in bodies if not events(body)]
    waiting[0].hang_up()
    scene.streams.close()
    scene.scheduler.run()
    assert scene.timers.pending == []
    assert all(events(body) == [] for body in waiting)


def test_a_public_address_is_given_as_the_origin() -> None:
    streams = ChangeStreams(
        Store(), FakeTimers(), unhurried_queue(), public_url="https://flags.test/", inactivity_seconds=60
    )
    assert streams.stream_links(Selection()) == [
        {
            "type": "sse",
            "endpoint": {"origin": "https://flags.test", "requestUri": PATH},
            "inactivityDelaySec": 60,
        }
    ]
