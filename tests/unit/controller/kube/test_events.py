"""Events on their way to an API server that refuses, fails or is slow."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from kubernetes.aio import client
from prometheus_client import CollectorRegistry

from controller.api.meta import ObjectKey, Resource
from controller.kube import event_sink
from controller.kube.event_sink import ApiServerEvents, EventTiming
from controller.runtime.event import Event, Occurrence, event_of
from controller.runtime.event_queue import MOST_WAITING
from evaluator.host.backoff import Backoff
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Response
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evaluator.http.messages import Request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATH = "/api/v1/namespaces/shop/events"
OBJECT = Resource(ObjectKey("FlagSet", "shop", "flags"), "u", 1, "7")


QUICK = EventTiming(backoff=Backoff(first=0.001, most=0.01, jitter=0.0), retries=0)


def event_with(message: str, resource: Resource = OBJECT) -> Event:
    return event_of(resource, Occurrence("Applied", message), NOW)


class Server:
    """Gives these answers to posts, one after the other, and 201 to all that follow."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.always = 201
        self.posted: list[dict[str, Any]] = []
        self.registry = CollectorRegistry()

    def post(self, request: Request) -> Response:
        self.posted.append(orjson.loads(request.body))
        status = self.answers.pop(0) if self.answers else self.always
        return Response(status, b"{}", (("content-type", "application/json"),))

    @property
    def messages(self) -> list[str]:
        return [each["message"] for each in self.posted]

    @property
    def dropped(self) -> float | None:
        return self.registry.get_sample_value("flagstaff_events_dropped_total")


@contextlib.asynccontextmanager
async def run_sink(
    server: Server, timing: EventTiming = QUICK, most: int = MOST_WAITING
) -> AsyncIterator[ApiServerEvents]:
    """A sink that posts to the server; it posts nothing yet."""
    listener = Listener(Routes(http={("POST", PATH): server.post}), Limits(), name="api")
    port = await listener.start("127.0.0.1", 0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    try:
        yield ApiServerEvents(api, server.registry, timing=timing, most=most)
    finally:
        await api.close()
        await listener.drain(1.0)


async def test_what_was_accepted_is_posted_before_a_stop_and_once() -> None:
    server = Server()
    async with run_sink(server) as sink, sink.post_in_background():
        for message in ("one", "two", "one"):
            sink.accept(event_with(message))
    assert server.messages == ["one", "two"]
    assert server.dropped == 0.0


async def test_the_name_comes_from_the_key() -> None:
    event = event_with("one")
    meta = event_sink.manifest(event)["metadata"]
    assert meta == {"name": f"flags.{event.key[:16]}", "namespace": "shop", "annotations": {}}
    known = replace(event, revision="main@sha1:1", digest="sha256:1")
    assert event_sink.manifest(known)["metadata"]["annotations"] == {
        "flagstaff.dev/revision": "main@sha1:1",
        "flagstaff.dev/digest": "sha256:1",
    }


async def test_what_changed_is_among_the_annotations_and_bounded() -> None:
    changes = "~ a: default off (false) → on (true)\n+ new: on (true)"
    occurrence = Occurrence(
        "Applied", "1 changed", metadata={"flagstaff.dev/changes": changes, "flagstaff.dev/author": "Ada"}
    )
    resource = Resource(ObjectKey("FlagSet", "shop", "flags"), "u", 1, "1")
    event = event_of(resource, occurrence, datetime(2026, 1, 2, tzinfo=UTC))
    found = event_sink.manifest(event)["metadata"]["annotations"]
    assert found == {"flagstaff.dev/changes": changes, "flagstaff.dev/author": "Ada"}
    long = replace(event, metadata={"flagstaff.dev/changes": "x" * 100_000})
    assert len(event_sink.manifest(long)["metadata"]["annotations"]["flagstaff.dev/changes"]) == 4_000


async def test_one_that_is_there_already_was_posted(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(409)
    async with run_sink(server) as sink, sink.post_in_background():
        sink.accept(event_with("one"))
        sink.accept(event_with("two"))
    assert server.messages == ["one", "two"]
    assert caplog.text == ""


async def test_one_that_fails_again_and_again_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(*[500] * event_sink.MOST_ANSWERS)
    async with run_sink(server) as sink, sink.post_in_background():
        sink.accept(event_with("one"))
        sink.accept(event_with("two"))
    assert server.messages == [*["one"] * event_sink.MOST_ANSWERS, "two"]
    assert "an Event was not posted" in caplog.text


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_server_that_is_overloaded_is_asked_again_until_it_takes_the_event(status: int) -> None:
    server = Server(status, status, status)
    async with run_sink(server) as sink, sink.post_in_background():
        sink.accept(event_with("one"))
        sink.accept(event_with("two"))
    assert server.messages == ["one"] * 4 + ["two"]


async def test_a_server_that_is_down_is_asked_again() -> None:
    server = Server()
    listener = Listener(Routes(http={("POST", PATH): server.post}), Limits(), name="api")
    port = await listener.start("127.0.0.1", 0)
    await listener.drain(1.0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    sink = ApiServerEvents(api, server.registry)
    async with sink.post_in_background():
        sink.accept(event_with("one"))
        again = Listener(Routes(http={("POST", PATH): server.post}), Limits(), name="api")
        await again.start("127.0.0.1", port)
    assert server.messages == ["one"]
    await api.close()
    await again.drain(1.0)


async def test_one_that_is_refused_for_good_is_logged_and_the_next_is_posted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(403)
    async with run_sink(server) as sink, sink.post_in_background():
        sink.accept(event_with("one"))
        sink.accept(event_with("two"))
    assert server.messages == ["one", "two"]
    assert caplog.text.count("an Event was not posted") == 1


async def test_beyond_the_bound_the_oldest_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    async with run_sink(server, most=2) as sink:
        for message in ("one", "two", "three", "four"):
            sink.accept(event_with(message))
        async with sink.post_in_background():
            pass
    assert server.messages == ["three", "four"]
    assert server.dropped == 2.0
    assert caplog.text.count("the oldest are dropped") == 1


async def test_a_stop_does_not_wait_for_ever() -> None:
    server = Server()
    server.always = 503
    async with run_sink(server, replace(QUICK, drain=0.05)) as sink, sink.post_in_background():
        sink.accept(event_with("one"))
    assert set(server.messages) == {"one"}
