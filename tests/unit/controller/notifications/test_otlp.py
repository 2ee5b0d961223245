"""What a real collector's endpoint is posted: read by OpenTelemetry's own messages."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from controller.api.provider import FlagProviderSpec
from controller.notifications.forms.otlp import trace_id
from controller.notifications.forms.posts import ProviderTarget
from controller.notifications.sending.posting import Poster
from tests.unit.controller.notifications.test_deliverer import Office
from tests.unit.controller.notifications.things import CHAT, NOW, Desk, alert, event, thing
from tests.web_server import web_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from controller.api.objects.meta import Resource

REVISION: Final = "main@sha1:" + "1" * 40


def source(observed: str = "2026-01-02T03:04:01.250Z", revision: str = REVISION) -> Resource:
    metadata = {"flagstaff.dev/observed-at": observed}
    artifact = {
        "url": "http://artifacts/a", "revision": revision, "digest": "sha256:a",
        "lastUpdateTime": "2026-01-02T03:04:02Z", "metadata": metadata,
    }  # fmt: skip
    return thing("FlagSource", "flags", status={"artifact": artifact})


def flag_set(propagated: str = "True", **more: Any) -> Resource:
    reason = "Served" if propagated == "True" else "NobodySubscribed"
    since = {"lastTransitionTime": "2026-01-02T03:04:04Z"}
    entry = {"revision": REVISION, "digest": "sha256:b", "appliedAt": "2026-01-02T03:04:03Z", "author": "Ada"}
    status = {
        "lastAttemptedRevision": REVISION, "lastAppliedRevision": REVISION, "digest": "sha256:b",
        "served": "3/3", "history": [entry],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "m", **since},
            {"type": "Propagated", "status": propagated, "reason": reason, "message": "3 of 3", **since},
        ],
        **more,
    }  # fmt: skip
    spec = {"sourceRef": {"kind": "FlagSource", "name": "flags"}}
    return thing("FlagSet", "checkout", spec, status=status, resource_version="2")


class Collector:
    """The endpoint of a collector, as a Desk's provider."""

    def __init__(self) -> None:
        self.logs: list[ExportLogsServiceRequest] = []
        self.spans: list[list[Span]] = []
        self.address = ""

    async def log(self, request: web.Request) -> web.Response:
        return await self._take(request, self.logs, ExportLogsServiceRequest)

    async def trace(self, request: web.Request) -> web.Response:
        requests: list[ExportTraceServiceRequest] = []
        answer = await self._take(request, requests, ExportTraceServiceRequest)
        self.spans += [list(each.resource_spans[0].scope_spans[0].spans) for each in requests]
        return answer

    async def _take(self, request: web.Request, taken: list[Any], kind: Any) -> web.Response:
        assert request.headers["Content-Type"] == "application/x-protobuf"
        if request.headers.get("Authorization") != "Bearer the-token":
            return web.Response(status=401)
        taken.append(kind.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")


@contextlib.asynccontextmanager
async def collecting(
    *objects: Resource, about: str = "FlagSet", **spec: Any
) -> AsyncIterator[tuple[Collector, Office]]:
    collector = Collector()
    poster = Poster(lambda: NOW, allow_local=True)
    desk = Desk(alert(kind=about, **spec), *objects)
    desk.box.type = "otlp"
    office = Office(desk, poster)  # type: ignore[arg-type]
    task = asyncio.create_task(office.deliverer.run())
    routes = web.post("/v1/logs", collector.log), web.post("/v1/traces", collector.trace)
    async with web_server(*routes) as port:
        to = FlagProviderSpec(type="otlp")
        office.deliverer.use(
            CHAT, ProviderTarget(to, f"http://127.0.0.1:{port}/", "the-token", "shop", "controller-0")
        )
        try:
            yield collector, office
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await poster.close()


def attributes(found: Any) -> Mapping[str, str]:
    return {each.key: each.value.string_value for each in found.attributes}


async def test_an_event_is_a_log_record_with_its_facts() -> None:
    async with collecting() as (collector, office):
        happened = replace(event("Applied", "1 changed: banner"), revision=REVISION)
        office.desk.accept(happened)
        await office.until(1)
    (request,) = collector.logs
    (resource,) = request.resource_logs
    assert attributes(resource.resource)["service.name"] == "flagstaff-controller"
    (record,) = resource.scope_logs[0].log_records
    assert (record.body.string_value, record.event_name) == ("1 changed: banner", "flagstaff.FlagSet.Applied")
    assert (record.severity_text, record.severity_number) == ("INFO", 9)
    assert record.time_unix_nano == int(NOW.timestamp()) * 10**9
    assert record.trace_id == trace_id("shop", REVISION)
    facts = attributes(record)
    assert (facts["flagstaff.name"], facts["k8s.namespace.name"]) == ("flags", "shop")
    assert facts["flagstaff.dev/revision"] == REVISION
    assert len(facts["flagstaff.idempotency_key"]) == 64


def milliseconds(span: Span) -> tuple[int, int]:
    """Since the source was looked at."""
    observed = int(NOW.timestamp() * 1000) - 3_750
    return span.start_time_unix_nano // 10**6 - observed, span.end_time_unix_nano // 10**6 - observed


async def test_the_way_of_a_revision_is_a_trace_once_it_is_served() -> None:
    async with collecting(source()) as (collector, office):
        office.desk.objects.learn(flag_set())
        await office.until(1)
        office.desk.objects.learn(replace(flag_set(served="4/4"), resource_version="3"))
        office.desk.later(seconds=1)
    (spans,) = collector.spans
    whole, *steps = spans
    assert whole.name == "FlagSet shop/checkout"
    assert {each.name: milliseconds(each) for each in spans} == {
        whole.name: (0, 3_750),
        "fetch": (0, 750),
        "apply": (750, 1_750),
        "propagate": (1_750, 3_750),
    }
    assert {each.parent_span_id for each in steps} == {whole.span_id}
    assert {each.trace_id for each in spans} == {trace_id("shop", REVISION)}
    assert len({each.span_id for each in spans}) == 4
    facts = attributes(whole)
    assert (facts["flagstaff.dev/served"], facts["flagstaff.dev/author"]) == ("3/3", "Ada")


async def test_moments_that_were_seen_are_more_exact_than_those_of_a_status() -> None:
    async with collecting(source(revision="main@sha1:" + "0" * 40)) as (collector, office):
        desk = office.desk
        artifact = {**source().status["artifact"], "digest": "sha256:new"}
        desk.now = NOW - timedelta(milliseconds=2_500)
        desk.objects.learn(replace(source(), status={"artifact": artifact}, resource_version="2"))
        desk.objects.learn(thing("FlagSet", "checkout"))
        desk.now = NOW - timedelta(milliseconds=1_500)
        desk.objects.learn(flag_set("False"))
        desk.now = NOW - timedelta(milliseconds=200)
        desk.objects.learn(replace(flag_set(), resource_version="3"))
        await office.until(1)
    steps = {each.name: milliseconds(each) for each in collector.spans[0][1:]}
    assert steps == {"fetch": (0, 1_250), "apply": (1_250, 2_250), "propagate": (2_250, 3_550)}


async def test_without_subscribers_the_trace_ends_once_it_is_applied() -> None:
    async with collecting(source()) as (collector, office):
        office.desk.objects.learn(flag_set("Unknown"))
        await office.until(1)
    assert [each.name for each in collector.spans[0]] == ["FlagSet shop/checkout", "fetch", "apply"]


@pytest.mark.parametrize(
    "found",
    [
        flag_set("False"),
        flag_set(
            history=[
                {"revision": REVISION, "digest": "sha256:b"},
                {"revision": "main@sha1:0", "digest": "sha256:b"},
            ]
        ),
        flag_set(history=[{"revision": REVISION, "digest": "sha256:b", "appliedAt": "2026-01-02T02:04:03Z"}]),
        flag_set(history=[{"revision": REVISION, "digest": "sha256:b"}]),
        flag_set(lastAttemptedRevision="main@sha1:2"),
        flag_set(history=[]),
    ],
    ids=["not served", "no flag changed", "long ago", "no moment", "another came", "nothing"],
)
async def test_no_trace_is_made_up(found: Resource) -> None:
    async with collecting(source()) as (_, office):
        office.desk.objects.learn(found)
        assert office.desk.compare() == []


async def test_another_leader_exports_the_same_spans() -> None:
    async with collecting(source()) as (_, office):
        office.desk.objects.learn(flag_set())
        (span,) = office.desk.box.pending
        await office.until(1)
        again = office.desk.restart()
        again.box.type = "otlp"
        assert again.compare() == []
        again.box.recent.clear()
        again.box.journeys.clear()
        again.provider = replace(again.provider, generation=2)
        assert again.compare() == ["Propagated"]
        assert list(again.box.pending) == [span]
