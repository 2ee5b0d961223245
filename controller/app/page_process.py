"""The page of a cluster as a process, in the cluster or on the machine of its reader.

On a machine, the page has the rights of the kubeconfig. Other users of the machine, and pages of other sites,
can reach the port as well. They do not know the name under which it answers, which is drawn at random:
browsers resolve names below `localhost` to this machine (RFC 6761). The browser gets the name from a file
that only its user may read, since arguments of programs are public.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import secrets
import tempfile
import time
import webbrowser
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.api.kinds import FLAG_SET
from controller.app.cluster_page import ClusterViews
from controller.app.process_frame import ProcessFrame, open_frame, run_process, tls_files
from controller.kube.client import Cluster
from controller.kube.reviews import ClusterReviews
from controller.page.page_server import PageServer, PageStreams
from controller.page.rendering import PREFIX, SAFE, page
from controller.proxy.access import AccessReviews
from controller.proxy.users import User, bearer, seconds_left
from controller.runtime.clock import now, unix_time
from controller.runtime.metrics import watch_metrics
from controller.runtime.setbacks import Failed
from evaluator.host.signals import stop_at_signals, work_until
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.messages import Call, Request, Response, header, host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from prometheus_client.core import Metric

    from controller.app.settings import PageSettings
    from controller.page.page_source import PageSource
    from controller.runtime.watch_health import WatchHealth


RESULTS: Final = ("shown", "refused", "unavailable")


class PageMetrics(Collector):
    """Views and open pages, and how current the view of the cluster is."""

    def __init__(
        self, registry: CollectorRegistry, watches: WatchHealth, open_pages: Callable[[], int]
    ) -> None:
        self._watches = watches
        self._open_pages = open_pages
        self._requests = Counter(
            "flagstaff_page_requests",
            "Requests for views of the page, by what became of the caller's token.",
            ("result",),
            registry=registry,
        )
        for result in RESULTS:
            self._requests.labels(result)
        registry.register(self)

    def count(self, result: str) -> None:
        """Count a request, whose result is one of RESULTS."""
        self._requests.labels(result).inc()

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        yield GaugeMetricFamily(
            "flagstaff_page_streams", "Open pages that follow changes.", value=float(self._open_pages())
        )
        yield from watch_metrics(self._watches)


EVERYWHERE: Final = ("", "")
"""The right to get flag sets of all namespaces."""
_MOST_READERS: Final = 10_000
UNNAMED: Final = (
    "This page needs the token of a user of the cluster, in the header Authorization: Bearer. "
    "A login proxy in front of it sends one; open the page at the proxy's address."
)
EXPIRED: Final = "Your token has expired. Log in again, and load this page anew."
REFUSED: Final = (
    "The cluster does not accept your token. Log in again; if that does not help, ask whether the API server "
    "trusts the issuer of your login."
)
UNKNOWN: Final = "The API server does not answer at the moment, so nobody can be identified. Try again soon."


@dataclass(frozen=True, slots=True)
class TokenCallers:
    """Callers are users of the cluster: a TokenReview names a user, SubjectAccessReviews what it may see."""

    access: AccessReviews
    """Reviews of tokens, and of the right to get flag sets of a namespace."""
    views: ClusterViews
    unix_time: Callable[[], float]
    _seen: LRUCache[str, frozenset[str] | None] = field(
        default_factory=lambda: LRUCache(_MOST_READERS), init=False
    )
    """The namespaces of each reader, as of the last view."""

    async def source_for(self, request: Request) -> PageSource | Response:
        """What the sender of a request may see, or a refusal."""
        token = bearer(_call(request))
        if token is None:
            return refusal(401, "Not logged in", UNNAMED)
        try:
            user = await self.access.user(token, host_of(request.peer))
            if user is None:
                expired = seconds_left(token, self.unix_time(), unlimited=1.0) <= 0
                return refusal(401, "Not logged in", EXPIRED if expired else REFUSED)
            namespaces = await self._namespaces(user)
        except Failed:
            return refusal(503, "Not available", UNKNOWN)
        self._seen[user.reader] = namespaces
        return await self.views.show(request, namespaces)

    def changes_for(self, request: Request) -> Callable[[], str] | Response:
        """The version of what the sender of a request was shown last, or a refusal: a page asks for changes
        after its view was made. Rights are reviewed with each view.
        """
        user = self.access.last_known(_call(request))
        if user is None or user.reader not in self._seen:
            return refusal(401, "Not logged in", REFUSED)
        namespaces = self._seen[user.reader]
        return lambda: self.views.objects.version(namespaces)

    def reader_of(self, request: Request) -> str:
        """The reader that sends a request; empty: its token was not reviewed yet, or is refused."""
        user = self.access.last_known(_call(request))
        return "" if user is None else user.reader

    async def _namespaces(self, user: User) -> frozenset[str] | None:
        """The namespaces with flag sets that a user may see; None: all. Raises Failed."""
        if await self.access.may_read(user, EVERYWHERE):
            return None
        names = sorted(self.views.objects.namespaces())
        allowed = await asyncio.gather(*(self.access.may_read(user, (name, "")) for name in names))
        return frozenset(name for name, allows in zip(names, allowed, strict=True) if allows)


def refusal(status: int, title: str, message: str) -> Response:
    """A page that says in plain words why nothing is shown."""
    response = page("refused.html", status, title=title, message=message)
    asks = (("www-authenticate", "Bearer"),) if status == 401 else ()
    return response._replace(headers=(*response.headers, *asks))


def _call(request: Request) -> Call:
    return Call(request.path, request.headers, request.peer)


LIMITS: Final = replace(Limits(), body_bytes=65_536, connections=2_000, connections_per_host=2_000)
"""Of the port of the page. A login proxy has all connections from one address."""


@dataclass(frozen=True, slots=True)
class PageProcess:
    """A replica whose ports are open."""

    ports: Mapping[str, int]
    views: ClusterViews
    """What is to be watched."""

    def work(self) -> Coroutine[Any, Any, None]:
        """Watch until cancelled."""
        return self.views.watch()


@contextlib.asynccontextmanager
async def open_page(settings: PageSettings) -> AsyncIterator[PageProcess]:
    """Ports open and parts joined; `views.watch` does the rest. Raises OSError for a port or certificate."""
    tls = await tls_files(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    async with open_frame(settings) as frame:
        callers = await _open_callers(settings, frame)
        views = callers.views
        streams = PageStreams(asyncio.get_running_loop(), callers.changes_for, callers.reader_of)
        views.notify = streams.notify
        counts = PageMetrics(frame.registry, views.health, lambda: len(streams))
        management = await frame.manage(views.readiness)
        server = PageServer(partial(_count, callers, counts), streams, now)
        listener = Listener(server.routes(), LIMITS, name="page")
        page = await frame.listen(listener, settings.page_host, settings.page_port, tls)
        frame.stack.callback(server.close)
        yield PageProcess({"page": page, "management": management}, views)


async def _open_callers(settings: PageSettings, frame: ProcessFrame) -> TokenCallers:
    """Who may see what of the cluster, over one connection to it. Raises ConfigException."""
    cluster = await frame.connect()
    reviews = ClusterReviews(cluster, settings.auth_audiences, FLAG_SET)
    access = AccessReviews(reviews, clock=time.monotonic, unix_time=unix_time)
    frame.stack.callback(access.close)
    views = ClusterViews(cluster, settings.namespaces or ("",), settings.proxies)
    frame.stack.push_async_callback(views.close)
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
    await run_process(open_page(settings), say)


_HOST: Final = "127.0.0.1"
_OWN_DRAIN: Final = 1.0
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
        listener = Listener(server.routes(), LIMITS, name="page")
        # The default port is that of the process in a cluster.
        fixed_port = settings.page_port if "page_port" in settings.model_fields_set else 0
        port = await listener.start(_HOST, fixed_port)
        stack.push_async_callback(listener.drain, _OWN_DRAIN)
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
