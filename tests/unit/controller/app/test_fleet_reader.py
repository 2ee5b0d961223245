"""What proxies answer when they are asked for their evaluators."""

from __future__ import annotations

from aiohttp import web

from controller.app.cluster_objects import FRESH_SECONDS, FleetReader
from tests.web_server import web_server

FLEET = {"flagSets": [{"namespace": "shop", "name": "flags", "members": [{"name": "shop/pod-1"}]}]}


async def test_evaluators_are_asked_for_at_most_once_in_a_few_seconds() -> None:
    asked: list[str] = []
    time = 100.0

    async def fleet(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response(FLEET)

    async with web_server(web.get("/fleet", fleet)) as port:
        reader = FleetReader(f"127.0.0.1:{port}", lambda: time)
        for _ in range(3):
            [member] = (await reader.members())["shop/flags"]
            assert member.name == "shop/pod-1"
        assert reader.wait_for_answer_after(99.0) is None
        assert reader.wait_for_answer_after(101.0) == FRESH_SECONDS
        time += FRESH_SECONDS
        await reader.members()
        assert reader.wait_for_answer_after(101.0) is None
        await reader.close()
    assert asked == ["/fleet", "/fleet"]


async def test_a_proxy_that_answers_badly_is_left_out() -> None:
    async def no_json(_: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with web_server(web.get("/fleet", no_json)) as port:
        for address in (f"127.0.0.1:{port}", "127.0.0.1:1", "no-such-host.invalid:80", ""):
            reader = FleetReader(address, lambda: 1.0)
            assert await reader.members() == {}
            await reader.close()
