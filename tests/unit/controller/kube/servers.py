"""A client of a small server that speaks for the API server."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from aiohttp import web

from controller.kube.client import Cluster
from tests.web_server import web_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


@contextlib.asynccontextmanager
async def open_client(
    answer: Callable[[web.Request], Awaitable[web.Response]], folder: Path
) -> AsyncIterator[Cluster]:
    """The client, with its kubeconfig in the folder."""
    async with web_server(web.route("*", "/{tail:.*}", answer)) as port:
        server = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [server], "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (folder / "config").write_text(json.dumps(config))
        made = await Cluster.connect(str(folder / "config"))
        yield made
        await made.close()
