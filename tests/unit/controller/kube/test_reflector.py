"""What is no list, and comes from a proxy before the API server, is not taken for an empty cluster."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from kubernetes.aio import client

from controller.api.kinds import FLAG_SET
from controller.kube.reflector import Reflector, WatchScope
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.setbacks import Failed
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Response
from evaluator.http.routes import Routes

VIEW = WatchScope(FLAG_SET)


class Reported:
    """What a reflector reported, by name."""

    def __init__(self) -> None:
        self.informer = Informer(Cache(), transforms_of([FLAG_SET]))
        self.informer.react_to_list(self._count)
        self.lists = 0

    @property
    def there(self) -> set[str]:
        return {resource.name for resource in self.informer.store}

    def _count(self) -> None:
        self.lists += 1


@pytest.mark.parametrize(
    "page", [b"<html>Sign in</html>", b"{}", b'{"message": "ok"}', b'{"metadata": 1}', b"[]", b""]
)
async def test_nothing_is_forgotten_for_an_answer_that_is_no_list(page: bytes) -> None:
    pages = iter([b'{"metadata": {}, "items": [{"metadata": {"name": "flags"}}]}', page])
    routes = Routes(http={("GET", VIEW.path): lambda _: Response(200, next(pages))})
    listener, found = Listener(routes, Limits(), name="api"), Reported()
    port = await listener.start("127.0.0.1", 0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    reflector = Reflector(api, VIEW, found.informer, clock=lambda: 0.0, random=lambda: 0.0)
    await reflector.list_once()
    with pytest.raises(Failed):
        await reflector.list_once()
    assert (found.there, found.lists) == ({"flags"}, 1)
    await api.close()
    await listener.drain(1.0)


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        pytest.param({}, {"flags"}, id="whatever answers knows no kinds at all"),
        pytest.param({"/apis": ("APIGroupList", "groups", [])}, set(), id="the group is gone"),
        pytest.param(
            {"/apis/flagstaff.dev/v1beta1": ("APIResourceList", "resources", [])},
            set(),
            id="the kind is gone",
        ),
        pytest.param(
            {"/apis/flagstaff.dev/v1beta1": ("APIResourceList", "resources", [{"name": "flagsets"}])},
            {"flags"},
            id="the kind is there",
        ),
    ],
)
async def test_a_404_removes_flags_only_where_the_api_server_says_that_the_kind_is_not_installed(
    answers: dict[str, tuple[str, str, list[object]]], left: set[str]
) -> None:
    lists = iter([Response(200, b'{"metadata": {}, "items": [{"metadata": {"name": "flags"}}]}')])
    paths: dict[tuple[str, str], Any] = {}
    for path, (kind, name, items) in answers.items():
        body = json.dumps({"kind": kind, name: items}).encode()
        paths["GET", path] = partial(_answer, body)
    paths["GET", VIEW.path] = lambda _: next(lists, Response(404, b"404 page not found"))
    listener, found = Listener(Routes(http=paths), Limits(), name="api"), Reported()
    port = await listener.start("127.0.0.1", 0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    reflector = Reflector(api, VIEW, found.informer, clock=lambda: 0.0, random=lambda: 0.0)
    await reflector.list_once()
    running = asyncio.create_task(reflector.run())
    async with asyncio.timeout(60):
        while not reflector.fault and found.lists < 2:  # noqa: ASYNC110 - what is waited for is state of the code
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert found.there == left
    await api.close()
    await listener.drain(1.0)


def _answer(body: bytes, _: object) -> Response:
    return Response(200, body)


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (
            403,
            b'{"message": "flagsets is forbidden: User \\"ada\\" cannot list"}',
            "flagsets is forbidden: User",
        ),
        (401, b'{"message": "Unauthorized"}', "Unauthorized"),
        (403, b"<html>Sign in</html>", "status 403"),
    ],
)
async def test_refusal_of_a_list_is_told_in_the_api_server_s_words(
    status: int, body: bytes, fault: str
) -> None:
    routes = Routes(http={("GET", VIEW.path): lambda _: Response(status, body)})
    listener = Listener(routes, Limits(), name="api")
    port = await listener.start("127.0.0.1", 0)
    api = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}"))
    reflector = Reflector(api, VIEW, Reported().informer, random=lambda: 0.0)
    running = asyncio.create_task(reflector.run())
    async with asyncio.timeout(60):
        while not reflector.fault:  # noqa: ASYNC110 - what is waited for is state of the code
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert reflector.fault.startswith(fault)
    await api.close()
    await listener.drain(1.0)
