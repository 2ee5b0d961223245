"""Mounts the page on a port: views are made in a thread, changes are sent as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.page.page_streams import FIRSTS, MOST
from controller.page.pages import respond
from controller.page.rendering import PREFIX, SAFE, STATIC
from evaluator.host.shares import FairShare
from evaluator.host.threads import FairThreads, work_for
from evaluator.http.deferred import Deferred
from evaluator.http.host_check import is_of_page
from evaluator.http.messages import Response, header
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from datetime import datetime

    from controller.page.page_source import PageSource
    from controller.page.page_streams import PageStreams
    from evaluator.http.deferred import Wait
    from evaluator.http.messages import Request, Streamed

log = logging.getLogger(__name__)

MOST_VIEWS: Final = MOST + 32
"""Most views that are being made or wait for the thread, half of them of one reader; further requests get
503. After a change, each open page asks for its own.
"""
SECONDS: Final = 30.0
"""Seconds for which a view is waited for."""
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FILES: Final = {file.name: file for file in sorted(STATIC.iterdir()) if file.suffix in _TYPES}


class PageServer:
    """Answers requests below `/ui`."""

    def __init__(
        self,
        source_for: Callable[[Request], Awaitable[PageSource | Response]],
        streams: PageStreams,
        clock: Callable[[], datetime],
        *,
        local: bool = False,
    ) -> None:
        """`source_for` returns what the sender of a request may see, or a refusal. `local`: only pages of
        this machine may ask, as no token is asked for.
        """
        self._source_for = source_for
        self._streams = streams
        self._clock = clock
        self._local = local
        self._views: FairShare[str] = FairShare(MOST_VIEWS, FIRSTS, resource="page views")
        # What views keep between them is for one thread.
        self._thread = FairThreads(1, 0, resource="page thread")

    def routes(self) -> Routes:
        """`/ui`, its views, its files, and the stream of changes."""
        return Routes(
            http={
                ("GET", PREFIX): self.answer,
                ("GET", f"{PREFIX}/*"): self.answer,
                ("POST", f"{PREFIX}/*"): self.answer,
                ("GET", f"{PREFIX}/changes"): self.changes,
                ("GET", f"{PREFIX}/static/*"): send_file,
            }
        )

    def close(self) -> None:
        """End the streams, and begin no more views."""
        self._streams.close()
        self._thread.shutdown(wait=False)

    def answer(self, request: Request) -> Response | Deferred[Response]:
        """Make a view; 403 for what another site's page sent, 503 where too many wait."""
        if self._is_foreign(request):
            return Response(403, b"this page is not for other sites\n", SAFE)
        return Deferred(self._steps(request))

    def changes(self, request: Request) -> Response | Streamed:
        """Send an event after each change of what the page shows."""
        if self._is_foreign(request):
            return Response(403, b"this page is not for other sites\n", SAFE)
        return self._streams.open(request)

    def _is_foreign(self, request: Request) -> bool:
        if self._local:
            # A link on another site may lead here: its reader sees no more than without it.
            return is_of_page(_without_site(request) if request.method == "GET" else request)
        return request.method == "POST" and header(request.headers, "sec-fetch-site") == "cross-site"

    def _steps(self, request: Request) -> Generator[Wait, None, Response]:
        reader = self._streams.reader_of(request)
        if not self._views.has_place(reader):
            return Response(503, b"too many requests\n", (("retry-after", "1"), *SAFE))
        self._views.hold(reader)
        task = asyncio.get_running_loop().create_task(self._make(request))
        try:
            yield lambda resume: task.add_done_callback(lambda _: resume())
            return task.result()
        finally:
            self._views.release(reader)
            task.cancel()

    async def _make(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(SECONDS):
                source = await self._source_for(request)
                if isinstance(source, Response):
                    return source
                make = partial(respond, request, source, self._clock())
                # Before, the token of a first request was unknown.
                with work_for(self._streams.reader_of(request)):
                    return await asyncio.get_running_loop().run_in_executor(self._thread, make)
        except TimeoutError:
            return Response(503, b"this view took too long; try again\n", (("retry-after", "5"), *SAFE))


def send_file(request: Request) -> Response:
    """Send a style sheet or a script. All are small, and of this installation."""
    file = _FILES.get(request.path.rpartition("/")[2])
    if file is None:
        return Response(404, b"there is no such file\n", SAFE)
    kind = f"{_TYPES[file.suffix]}; charset=utf-8"
    return Response(200, file.read_bytes(), (("content-type", kind), ("cache-control", "no-cache"), *SAFE))


def _without_site(request: Request) -> Request:
    """The request without the browser's word on which site it comes from; its host still counts."""
    headers = tuple(pair for pair in request.headers if pair[0] != "sec-fetch-site")
    return request._replace(headers=headers)
