"""The page of a cluster as a process: its parts joined, and its ports open until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest

from controller.api.kinds import FLAG_SET
from controller.app.page.callers import TokenCallers
from controller.app.page.cluster_views import ClusterViews
from controller.app.page.page_metrics import PageMetrics
from controller.kube.client import Cluster
from controller.kube.reviews import ClusterReviews
from controller.page.page_server import PageServer
from controller.page.page_streams import PageStreams
from controller.page.rendering import PREFIX
from controller.proxy.access.access import AccessReviews
from controller.runtime.clock import now, unix_time
from controller.runtime.process import management
from controller.runtime.process.metrics import ProcessMetrics
from controller.runtime.process.stop_signals import stop_at_signals, work_until
from evaluator.host.threads import share_threads
from evaluator.http.messages import Response
from evaluator.http.offload import Offload
from evaluator.http.routes import Routes, merge
from evaluator.http.server.limits import MANAGEMENT, Limits
from evaluator.http.server.listener import Listener
from evaluator.http.server.tls import TlsFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.app.settings.process_settings import PageSettings
    from controller.page.page_source import PageSource
    from evaluator.http.messages import Request

LIMITS: Final = replace(Limits(), body_bytes=65_536, connections=2_000, connections_per_host=2_000)
"""Of the port of the page. A login proxy has all connections from one address."""
_DRAIN: Final = 2.0
TO_PAGE: Final = Routes(http={("GET", "/"): lambda _: Response(307, b"", (("location", PREFIX),))})
"""Leads from the root of the port to the page."""


@dataclass(frozen=True, slots=True)
class PageProcess:
    """A replica whose ports are open."""

    page_port: int
    management_port: int
    views: ClusterViews
    """What is to be watched."""


@contextlib.asynccontextmanager
async def open_page(settings: PageSettings) -> AsyncIterator[PageProcess]:
    """Ports open and parts joined; `views.watch` does the rest. Raises OSError for a port or certificate."""
    files = (settings.tls_cert, settings.tls_key, settings.tls_client_ca or None)
    tls = await asyncio.to_thread(TlsFiles, *files) if settings.tls_cert else None
    async with contextlib.AsyncExitStack() as stack:
        callers = await _open_callers(settings, stack)
        views = callers.views
        streams = PageStreams(asyncio.get_running_loop(), callers.changes_for, callers.reader_of)
        views.notify = streams.notify
        registry = CollectorRegistry(auto_describe=False)
        counts, metrics = PageMetrics(registry, views.health, lambda: len(streams)), ProcessMetrics()
        registry.register(metrics)
        metrics.lag.start()
        stack.callback(metrics.lag.stop)
        offload = Offload()
        stack.callback(offload.close)
        managed = management.routes(views.readiness, partial(generate_latest, registry), offload)
        manager = Listener(managed, MANAGEMENT, name="management")
        management_port = await manager.start(
            settings.management_host or settings.host, settings.management_port
        )
        stack.push_async_callback(manager.drain, _DRAIN)
        server = PageServer(partial(_count, callers, counts), streams, now)
        listener = Listener(merge(server.routes(), TO_PAGE), LIMITS, name="page")
        page_port = await listener.start(settings.page_host or settings.host, settings.page_port, tls=tls)
        stack.push_async_callback(listener.drain, _DRAIN)
        stack.callback(server.close)
        for listening in (manager, listener):
            metrics.ports.port(listening.name, listening)
        yield PageProcess(page_port, management_port, views)


async def _open_callers(settings: PageSettings, stack: contextlib.AsyncExitStack) -> TokenCallers:
    """Who may see what of the cluster, over one connection to it. Raises ConfigException."""
    cluster = await Cluster.connect(settings.kubeconfig or None)
    stack.push_async_callback(cluster.close)
    reviews = ClusterReviews(cluster, settings.auth_audiences, FLAG_SET)
    access = AccessReviews(reviews, clock=time.monotonic, unix_time=unix_time)
    stack.callback(access.close)
    views = ClusterViews(cluster, settings.namespaces or ("",), settings.proxies)
    stack.push_async_callback(views.close)
    return TokenCallers(access, views, unix_time)


async def _count(callers: TokenCallers, counts: PageMetrics, request: Request) -> PageSource | Response:
    """What the sender of a request may see, counted."""
    source = await callers.source_for(request)
    if isinstance(source, Response):
        counts.count("unavailable" if source.status == 503 else "refused")
    else:
        counts.count("shown")
    return source


async def run_page(settings: PageSettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends it at once. Raises OSError as `open_page`."""
    stop = stop_at_signals()
    share_threads()
    async with open_page(settings) as process:
        say(f"listening: page {process.page_port}, management {process.management_port}")
        await work_until(stop, process.views.watch())
