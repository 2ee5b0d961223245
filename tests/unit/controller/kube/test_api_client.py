"""The client's credentials, beside an API server that accepts one token at a time."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from controller.kube.client import Cluster
from evaluator.http.messages import Response
from evaluator.http.routes import Routes
from evaluator.http.server.limits import Limits
from evaluator.http.server.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from evaluator.http.messages import Request

PATH = "/api/v1/namespaces/shop/configmaps/c"


class Server:
    """Accepts `token` alone."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.token = "first"  # noqa: S105
        self.refused: list[str] = []
        self.port = 0

    def answer(self, request: Request) -> Response:
        given = dict(request.headers).get("authorization", "")
        if given == f"Bearer {self.token}":
            return Response(200, b'{"kind": "ConfigMap"}', (("content-type", "application/json"),))
        self.refused.append(given)
        return Response(401, b'{"message": "Unauthorized"}', (("content-type", "application/json"),))

    def write(self, token: str) -> None:
        server = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        user = {"name": "u", "user": {"token": token}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        body = {"clusters": [server], "users": [user], "contexts": [context], "current-context": "x"}
        self.kubeconfig.write_text(json.dumps(body))


@contextlib.asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[Server, Cluster]]:
    server = Server(folder / "config")
    listener = Listener(Routes(http={("GET", PATH): server.answer}), Limits(), name="api")
    server.port = await listener.start("127.0.0.1", 0)
    server.write(server.token)
    cluster = await Cluster.connect(str(server.kubeconfig))
    try:
        yield server, cluster
    finally:
        await cluster.close()
        await listener.drain(1)


async def test_a_token_that_was_replaced_is_read_again_once_it_is_refused(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, cluster):
        assert (await cluster.request("GET", PATH)).status == 200
        server.token = "second"  # noqa: S105
        server.write("second")
        assert (await cluster.request("GET", PATH)).status == 200
        assert server.refused == ["Bearer first"]
        assert (await cluster.request("GET", PATH)).status == 200
        assert len(server.refused) == 1


async def test_a_token_that_is_refused_for_good_is_not_tried_twice(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, cluster):
        server.token = "second"  # noqa: S105
        assert (await cluster.request("GET", PATH)).status == 401
        server.kubeconfig.unlink()
        assert (await cluster.request("GET", PATH)).status == 401
        assert server.refused == ["Bearer first", "Bearer first"]
