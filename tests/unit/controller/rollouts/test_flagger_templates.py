"""MetricTemplates of Flagger, with another group: each is asked as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import web

from tests.web_server import web_server
from tests.worlds.metrics import metric_world

MANIFESTS: Final = {
    manifest["metadata"]["name"]: manifest
    for manifest in yaml.safe_load_all((Path(__file__).parents[3] / "flagger_templates.yaml").read_text())
}


@pytest.mark.parametrize("name", MANIFESTS)
async def test_a_template_of_flagger_is_asked(name: str) -> None:
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        if "DD-API-KEY" in request.headers:
            return web.json_response({"status": "ok", "series": [{"pointlist": [[1, 0.25]]}]})
        result = [{"metric": {}, "value": [1, "0.25"]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    async with metric_world() as world, web_server(web.get("/api/v1/query", answer)) as port:
        world.secrets["prom-auth"] = {"username": b"ada", "password": b"hunter2"}
        world.secrets["datadog"] = {"datadog_api_key": b"a", "datadog_application_key": b"b"}
        manifest: dict[str, Any] = {**MANIFESTS[name], "apiVersion": "flagstaff.dev/v1beta1"}
        # What has no address is asked at the vendor's.
        manifest["spec"]["provider"]["address"] = f"http://127.0.0.1:{port}"
        world.put(manifest)
        status = await world.check(
            templateRef={"name": name}, templateVariables={"path": "/pay"}, interval="5m"
        )
    assert (status.verdict, status.message) == ("Pass", None)
    (request,) = asked
    assert "{{" not in request.query["query"]
    assert "checkout-production" in request.query["query"]
