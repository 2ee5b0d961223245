"""The session of kopf's watches, beside an API server of our own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from controller.handlers import session
from controller.runtime.objects.watch_health import WatchHealth

if TYPE_CHECKING:
    import pytest

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def test_a_scan_for_kinds_waits_until_discovery_follows_the_definitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({})

    monkeypatch.setattr(asyncio, "sleep", sleep)
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        middlewares = (session.Patience(WatchHealth(lambda: 0.0)),)
        async with aiohttp.ClientSession(server.make_url("/"), middlewares=middlewares) as client:
            for path in ("/apis", "/apis/apps/v1", _DEFINITIONS):
                await client.get(path)
            assert not waits
            await client.get("/apis")
            assert waits == [session.DISCOVERY_PAUSE]
            await client.get("/apis/apps/v1")
            assert len(waits) == 1
