"""The ConfigMap with limits of single namespaces, as an API server delivers it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from kubernetes.aio import client

from controller.app.quota_overrides import Overrides, overridden
from controller.runtime.tenancy.limits import Limits, NamespaceLimits
from evaluator.http.messages import Request, Response
from evaluator.http.routes import Routes
from evaluator.http.server.limits import Limits as PortLimits
from evaluator.http.server.listener import Listener

if TYPE_CHECKING:
    from controller.runtime.events import Event

META = {"name": "quotas", "namespace": "flagstaff-system", "uid": "1", "resourceVersion": "7"}


class Events(list["Event"]):
    """Of which a test knows."""

    def accept(self, event: Event) -> None:
        self.append(event)


@pytest.fixture
def limits() -> Limits:
    return Limits(NamespaceLimits(sources=5))


async def test_it_is_known_before_anything_is_looked_at_and_asked_for_by_its_name(limits: Limits) -> None:
    body = {"metadata": META, "data": {"shop": "sources: 20"}}
    page = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [body]}).encode()
    asked: list[dict[str, list[str]]] = []

    def answer(request: Request) -> Response:
        asked.append(parse_qs(request.query))
        return Response(200, page if "watch" not in asked[-1] else b"")

    path = "/api/v1/namespaces/flagstaff-system/configmaps"
    listener = Listener(Routes(http={("GET", path): answer}), PortLimits(), name="api")
    port = await listener.start("127.0.0.1", 0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    async with overridden(limits, api, "flagstaff-system", "quotas", Events()):
        assert limits.of("shop").sources == 20
        async with asyncio.timeout(60):
            while len(asked) < 2:  # noqa: ASYNC110 - what is waited for is state of the test
                await asyncio.sleep(0.001)
    assert {tuple(each["fieldSelector"]) for each in asked} == {("metadata.name=quotas",)}
    await api.close()
    await listener.drain(1.0)


async def test_without_a_name_no_request_is_sent(limits: Limits) -> None:
    unreachable: Any = None
    async with overridden(limits, unreachable, "flagstaff-system", "", Events()):
        assert limits.of("shop").sources == 5


def test_a_mistake_is_reported_once_and_once_more_when_it_changes(limits: Limits) -> None:
    events = Events()
    overrides = Overrides(limits, events)
    for text in ("sources: 20", "sources: x", "sources: x", "sources: y", "sources: -1"):
        overrides.learn("ConfigMap", {"metadata": META, "data": {"shop": text}})
    assert limits.of("shop").sources == 20
    assert [(each.object.kind, each.object.name, each.reason) for each in events] == [
        ("ConfigMap", "quotas", "InvalidQuota")
    ] * 2
    assert events[0].message == (
        "shop.sources: must be a whole number; until it is corrected the last good limits hold, or "
        "those of the options"
    )
    overrides.forget("ConfigMap", "flagstaff-system", "quotas")
    assert limits.of("shop").sources == 5
    overrides.learn("ConfigMap", {"metadata": META, "data": {"shop": "sources: -1"}})
    assert len(events) == 3
