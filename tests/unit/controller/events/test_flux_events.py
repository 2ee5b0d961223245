"""Events to Flux's notification-controller: in its form, of objects that its Alerts know; nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from controller.api.flagprovider import FlagProviderSpec
from controller.api.meta import ObjectKey, Resource
from controller.events.flux_events import FluxEvents, post_of_flux
from controller.events.notice import ProviderTarget
from controller.runtime.cache import Cache
from controller.runtime.event import Occurrence, event_of
from evaluator.host.backoff import Backoff
from tests.unit.controller.events.schemas import SCHEMAS
from tests.web_server import web_server
from tests.worlds.events import NOW, event, failure_event, http_sender, message, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.api.flagprovider import Message
    from controller.runtime.event import Event

FLUX: Final = "source.toolkit.fluxcd.io"
ALERTED: Final = {"GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"}
"""Kinds that both Flux's Alert and a FlagSet may name."""


class Flux:
    """Takes what Flux's notification-controller documents."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.taken: list[dict[str, Any]] = []
        self.objects = Cache()
        self.hold: asyncio.Event | None = None

    async def take(self, request: web.Request) -> web.Response:
        if self.hold is not None:
            await self.hold.wait()
        found = await request.json()
        jsonschema_rs.validate(SCHEMAS["generic"], found)
        self.taken.append(found)
        return web.Response(status=self.answers.pop(0) if self.answers else 202)

    @property
    def messages(self) -> list[str]:
        return [each["message"] for each in self.taken]


@contextlib.asynccontextmanager
async def run_server(flux: Flux, port: int = 0) -> AsyncIterator[str]:
    async with web_server(web.post("/", flux.take), port=port) as taken:
        yield f"http://127.0.0.1:{taken}/"


@contextlib.asynccontextmanager
async def sink(flux: Flux, url: str, most: int = 5_000) -> AsyncIterator[FluxEvents]:
    """Posts to a URL; at its end all that waits has arrived, or was refused."""
    async with http_sender() as sender:
        found = FluxEvents(
            url, sender, flux.objects, "controller-0", CollectorRegistry(),
            backoff=Backoff(0.001, 0.01), most=most, drain=20.0,
        )  # fmt: skip
        async with found.post_in_background():
            yield found


async def post(flux: Flux, *events: Event) -> list[dict[str, Any]]:
    async with run_server(flux) as url, sink(flux, url) as found:
        for each in events:
            found.accept(each)
    return flux.taken


def follows(kind: str, **more: str) -> Flux:
    """Knows a flag set and its source."""
    flux = Flux()
    flux.objects.learn(thing("FlagSet", "flags", {"sourceRef": {"kind": kind, "name": "repo", **more}}))
    for namespace in ("shop", "other"):
        key = ObjectKey(kind, namespace, "repo")
        flux.objects.learn(Resource(key, f"uid-{namespace}", 1, "1", api_version=f"{FLUX}/v1"))
    return flux


def applied_event() -> Event:
    facts = {"flagstaff.dev/author": "Ada", "flagstaff.dev/changes": "+ new: on"}
    done = Occurrence("Applied", "1 added: new", metadata=facts)
    return event_of(thing("FlagSet", "flags", status=status(digest="sha256:1")), done, NOW)


@pytest.mark.parametrize("kind", sorted(ALERTED))
async def test_an_event_of_a_flag_set_names_its_flux_source(kind: str) -> None:
    given = applied_event()
    (found,) = await post(follows(kind), given)
    assert found["involvedObject"] == {
        "apiVersion": f"{FLUX}/v1", "kind": kind, "namespace": "shop", "name": "repo", "uid": "uid-shop",
    }  # fmt: skip
    assert found["message"] == "FlagSet/flags: 1 added: new"
    assert (found["severity"], found["reason"], found["timestamp"]) == (
        "info",
        "Applied",
        "2026-01-02T03:04:05Z",
    )
    # Flux drops what has another prefix.
    assert found["metadata"] == {
        f"{FLUX}/object": "FlagSet/shop/flags", f"{FLUX}/revision": "main@sha256:1",
        f"{FLUX}/digest": "sha256:1", f"{FLUX}/author": "Ada", f"{FLUX}/changes": "+ new: on",
        f"{FLUX}/token": given.key,
    }  # fmt: skip


async def test_an_event_without_a_flux_source_names_its_own_object() -> None:
    (found,) = await post(follows("FlagSource"), failure_event())
    assert (found["involvedObject"]["apiVersion"], found["involvedObject"]["kind"]) == (
        "flagstaff.dev/v1beta1", "FlagSet",
    )  # fmt: skip
    assert (found["severity"], found["message"]) == ("error", "words")
    assert found["metadata"]["flagstaff.dev/object"] == "FlagSet/shop/flags"


async def test_an_event_names_no_source_of_another_namespace() -> None:
    (found,) = await post(follows("GitRepository", namespace="other"), failure_event())
    assert found["involvedObject"]["kind"] == "FlagSet"


async def test_what_a_flag_source_exports_stands_for_it_and_its_flag_sets() -> None:
    flux = follows("FlagSource")
    exported = Resource(
        ObjectKey("ExternalArtifact", "shop", "repo"), "uid-export", 1, "1",
        api_version=f"{FLUX}/v1", owners=({"uid": "uid-shop"},),
    )  # fmt: skip
    flux.objects.learn(exported)
    stored = event_of(thing("FlagSource", "repo"), Occurrence("NewArtifact", "stored"), NOW)
    found = await post(flux, stored, applied_event())
    assert [each["involvedObject"]["uid"] for each in found] == ["uid-export", "uid-export"]
    assert [each["message"] for each in found] == ["FlagSource/repo: stored", "FlagSet/flags: 1 added: new"]
    # One of another's making is not ours to speak for.
    flux.objects.put(replace(exported, owners=()))
    assert (await post(flux, applied_event()))[-1]["involvedObject"]["kind"] == "FlagSet"


async def test_a_source_that_is_not_there_is_not_named() -> None:
    flux = follows("GitRepository")
    flux.objects.forget(ObjectKey("GitRepository", "shop", "repo"))
    (found,) = await post(flux, failure_event())
    assert found["involvedObject"]["kind"] == "FlagSet"


def hand_on(flux: Flux, said: Message) -> dict[str, Any]:
    """The Event that an alert of a FlagProvider of type flux hands to Flux."""
    target = ProviderTarget(
        FlagProviderSpec(type="flux"), "https://flux.example.com/", "", "shop", "controller-0"
    )
    post = post_of_flux(flux.objects, said, target)
    assert post.headers["Idempotency-Key"] == said.key
    found: dict[str, Any] = json.loads(post.body)
    jsonschema_rs.validate(SCHEMAS["generic"], found)
    return found


@pytest.mark.parametrize("kind", sorted(ALERTED))
def test_an_alert_hands_flux_a_message_about_the_flux_source_of_a_flag_set(kind: str) -> None:
    found = hand_on(follows(kind), message(severity="warning", metadata={"flagstaff.dev/author": "Ada"}))
    assert (found["involvedObject"]["kind"], found["involvedObject"]["name"]) == (kind, "repo")
    assert (found["severity"], found["message"]) == ("error", "FlagSet/flags: 1 changed: banner")
    assert found["metadata"] == {
        f"{FLUX}/author": "Ada", f"{FLUX}/object": "FlagSet/shop/flags", f"{FLUX}/token": "k",
        f"{FLUX}/alert": "all",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (message(), "repo"),
        (message(kind="FlagSource", name="other"), "other"),
        (message(kind="FeatureFlag", name="banner"), "banner"),
        (message(namespace="other"), "flags"),
    ],
    ids=["a FlagSet of a FlagSource", "a FlagSource", "another kind", "another namespace"],
)
def test_an_alert_without_a_flux_source_names_an_external_artifact_beside_the_provider(
    said: Message, name: str
) -> None:
    named = hand_on(follows("FlagSource"), said)["involvedObject"]
    assert (named["kind"], named["namespace"], named["name"]) == ("ExternalArtifact", "shop", name)


async def test_an_event_is_posted_until_it_is_taken_or_known_and_refused_ones_hold_up_none() -> None:
    flux = Flux(503, 500, 202, 429, 400, 202)
    await post(flux, event("A", "one"), event("A", "two"), event("A", "three"), event("A", "four"))
    assert flux.messages == ["one", "one", "one", "two", "three", "four"]


async def test_a_server_that_always_fails_holds_up_the_others_for_a_while() -> None:
    flux = Flux(*[503] * 10)
    await post(flux, event("A", "one"), event("A", "two"))
    assert flux.messages == ["one"] * 10 + ["two"]


async def test_events_made_while_the_server_is_away_arrive_once_in_order() -> None:
    flux = Flux()
    async with run_server(flux) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
    async with sink(flux, url) as found:
        for words in ("one", "two", "one"):
            found.accept(event("A", words))
        await asyncio.sleep(0.02)
        assert flux.messages == []
        async with run_server(flux, port):
            async with asyncio.timeout(20):
                while len(flux.taken) < 2:  # noqa: ASYNC110 - a server takes them
                    await asyncio.sleep(0.001)
    assert flux.messages == ["one", "two"]


async def test_a_server_that_hangs_is_not_waited_for_and_takes_no_memory() -> None:
    flux = Flux()
    flux.hold = asyncio.Event()
    async with run_server(flux) as url, sink(flux, url, most=3) as found:
        for number in range(1_000):
            found.accept(event("A", str(number)))
        assert flux.taken == []
        flux.hold.set()
    assert flux.messages == ["997", "998", "999"]
