"""The page of a cluster on the machine of its reader, with the rights of the kubeconfig.

Other users of the machine, and pages of other sites, can reach the port as well. They do not know the name
under which it answers, which is drawn at random: browsers resolve names below `localhost` to this machine
(RFC 6761). The browser gets the name from a file that only its user may read, since arguments of programs
are public.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import secrets
import tempfile
import webbrowser
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.api.kinds import FLAG_SET
from controller.app.page.cluster_views import ClusterViews
from controller.app.page.page_process import LIMITS, TO_PAGE
from controller.kube.client import Cluster
from controller.page.page_server import PageServer
from controller.page.page_streams import PageStreams
from controller.page.rendering import PREFIX, SAFE
from controller.runtime.clock import now
from controller.runtime.process.stop_signals import stop_at_signals, work_until
from evaluator.http.messages import Response, header
from evaluator.http.routes import merge
from evaluator.http.server.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.app.settings.process_settings import PageSettings
    from controller.page.page_source import PageSource
    from evaluator.http.messages import Request

_HOST: Final = "127.0.0.1"
_DRAIN: Final = 1.0
_REFUSED: Final = Response(
    403, b"this page is for the user who runs flagstaff page: open the address that it prints\n", SAFE
)
_FILE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}"><title>Flagstaff</title>
</head>
<body><p>The page is at <a href="{address}">{address}</a>.</p></body>
</html>
"""


class NamedCaller:
    """The one caller: who knows the name of the page."""

    def __init__(self, views: ClusterViews) -> None:
        self.name = ""
        """HOST:PORT in requests; empty until the port is known."""
        self._views = views

    async def source_for(self, request: Request) -> PageSource | Response:
        """All that is watched, or a refusal."""
        return await self._views.show(request, None) if self._knows(request) else _REFUSED

    def changes_for(self, request: Request) -> Callable[[], str] | Response:
        """The version of what is watched, or a refusal."""
        return partial(self._views.objects.version, None) if self._knows(request) else _REFUSED

    def _knows(self, request: Request) -> bool:
        host = header(request.headers, "host") or ""
        return bool(self.name) and secrets.compare_digest(host.lower().encode(), self.name.encode())


@contextlib.asynccontextmanager
async def open_own_page(
    settings: PageSettings, context: str | None
) -> AsyncIterator[tuple[str, ClusterViews]]:
    """The address of the page, and what is to be watched. `context`: one of the kubeconfig; None: its current
    one. Raises OSError for a port, ConfigException.
    """
    async with contextlib.AsyncExitStack() as stack:
        cluster = await Cluster.connect(settings.kubeconfig or None, context=context)
        stack.push_async_callback(cluster.close)
        namespaces = settings.namespaces or await _namespaces(cluster)
        views = ClusterViews(cluster, namespaces, settings.proxies)
        stack.push_async_callback(views.close)
        caller = NamedCaller(views)
        streams = PageStreams(asyncio.get_running_loop(), caller.changes_for)
        views.notify = streams.notify
        server = PageServer(caller.source_for, streams, now, local=True)
        listener = Listener(merge(server.routes(), TO_PAGE), LIMITS, name="page")
        # The default port is that of the process in a cluster.
        fixed_port = settings.page_port if "page_port" in settings.model_fields_set else 0
        port = await listener.start(_HOST, fixed_port)
        stack.push_async_callback(listener.drain, _DRAIN)
        stack.callback(server.close)
        caller.name = f"{secrets.token_hex(16)}.localhost:{port}"
        yield f"http://{caller.name}{PREFIX}", views


async def _namespaces(cluster: Cluster) -> tuple[str, ...]:
    """All namespaces, where the user may list flag sets of all; else that of the kubeconfig's context. Raises
    Failed.
    """
    answer = await cluster.request("GET", f"/apis/{FLAG_SET.api_version}/{FLAG_SET.plural}", {"limit": "1"})
    return (cluster.namespace,) if answer.status == HTTPStatus.FORBIDDEN else ("",)


async def run_own_page(settings: PageSettings, context: str | None, say: Callable[[str], None]) -> None:
    """Show the page until SIGTERM or SIGINT, and open the browser. Raises as `open_own_page`."""
    stop = stop_at_signals()
    with tempfile.TemporaryDirectory(prefix="flagstaff-") as folder:
        async with open_own_page(settings, context) as (address, views):
            say(f"the page is at {address}; Ctrl-C ends it")
            opening = asyncio.create_task(asyncio.to_thread(_open_browser, Path(folder), address))
            try:
                await work_until(stop, views.watch())
            finally:
                opening.cancel()


def _open_browser(folder: Path, address: str) -> None:
    """Open the browser with a file that leads to the address. Blocks."""
    file = folder / "page.html"
    file.touch(0o600)
    file.write_text(_FILE.format(address=html.escape(address)), encoding="utf-8")
    webbrowser.open(file.as_uri())
