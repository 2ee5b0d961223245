"""Mounts the page on a port: views are made in a thread, changes are sent as server-sent events.

A server-sent event notifies open pages of changes; a page then asks again for its view.

Nothing of a flag is in an event, so that every reader may have it. The framing is
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

import orjson

from controller.delivery.digests import is_revision
from controller.page.rendering import PREFIX, SAFE, STATIC, NotShown, Visit, page
from controller.page.views import delivery_view, flag_view, flags_view, pending_view
from evaluator.host.shares import FairShare
from evaluator.host.threads import FairThreads, work_for
from evaluator.http.deferred import Deferred, Wait, at_once
from evaluator.http.messages import JSON, ByteStream, Request, Response, Streamed, header
from evaluator.http.routes import Routes, is_of_page
from evaluator.server import manifest
from evaluator.wire.hub import Countdown, TimerHandle, Timers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping
    from datetime import datetime

    from controller.page.page_source import PageSource


KEEP_ALIVE_SECONDS: Final = 20.0
"""Proxies close connections that are silent for longer."""
GATHER_SECONDS: Final = 0.1
"""Seconds from a change until pages are notified; all changes in between need one event."""
MOST: Final = 400
"""Most open streams, half of them of one reader; further pages get 503 and try again."""
FIRSTS: Final = 100
"""Streams beyond them, for readers that have none."""
_HEADERS: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
    *SAFE,
)


class PageStreams:
    """The open streams."""

    def __init__(
        self,
        timers: Timers,
        changes_for: Callable[[Request], Callable[[], str] | Response],
        reader_of: Callable[[Request], str] = lambda _: "",
    ) -> None:
        """`changes_for` returns a refusal, or a function for the version of what the sender of a request may
        see: a text that changes with it. `reader_of` returns who sends a request; empty: it is unknown, or
        there is one reader.
        """
        self._changes_for = changes_for
        self.reader_of = reader_of
        self._shares: FairShare[str] = FairShare(MOST, FIRSTS, resource="page streams")
        self.silence: Countdown[PageStream] = Countdown(timers, KEEP_ALIVE_SECONDS, PageStream.keep_alive)
        self._timers = timers
        self._due: TimerHandle | None = None
        self._open: set[PageStream] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: Request) -> Response | Streamed:
        """The stream of one page; its `last-event-id`, or at first `?seen=`, is the version that it shows."""
        version = self._changes_for(request)
        if isinstance(version, Response):
            return version
        reader = self.reader_of(request)
        if not self._shares.has_place(reader):
            return Response(503, b"too many open pages\n", (("retry-after", "30"), *SAFE))
        seen = header(request.headers, "last-event-id") or request.query.removeprefix("seen=")

        def start(stream: ByteStream) -> None:
            opened = PageStream(self, stream, version, seen, reader)
            self._shares.hold(reader)
            self._open.add(opened)
            opened.advance()

        return Streamed(200, _HEADERS, start)

    def notify(self) -> None:
        """Notify all pages in a moment: changes come several at a time."""
        if self._due is None and self._open:
            self._due = self._timers.call_later(GATHER_SECONDS, self._advance_all)

    def _advance_all(self) -> None:
        self._due = None
        for opened in tuple(self._open):
            opened.advance()

    def forget(self, opened: PageStream) -> None:
        """Remove a stream that has ended."""
        self._open.remove(opened)
        self._shares.release(opened.reader)
        self.silence.forget(opened)

    def close(self) -> None:
        """End all streams."""
        if self._due is not None:
            self._due.cancel()
        for opened in tuple(self._open):
            opened.shut_down()


class PageStream:
    """One page, and the version that it shows."""

    def __init__(
        self, streams: PageStreams, stream: ByteStream, version: Callable[[], str], seen: str, reader: str
    ) -> None:
        self._streams = streams
        self._stream = stream
        self._version = version
        self._seen = seen
        self.reader = reader
        stream.on_writable = self.advance
        stream.on_closed = self._on_closed

    def advance(self) -> None:
        """Send the newest version, unless the page shows it already."""
        version = self._version()
        if version == self._seen or not self._stream.writable:
            return
        self._seen = version
        self._stream.send(f"id: {version}\nevent: change\ndata:\n\n".encode())
        self._streams.silence.restart(self)

    def keep_alive(self) -> None:
        """Send a comment; a peer that does not read has messages waiting already."""
        if self._stream.writable:
            self._stream.send(b":\n\n")
        self._streams.silence.restart(self)

    def shut_down(self) -> None:
        """End it."""
        self._on_closed()
        self._stream.close()

    def _on_closed(self) -> None:
        self._streams.forget(self)


VIEWS: Final[Mapping[tuple[str, str], Callable[[Visit], Response]]] = {
    ("GET", ""): flags_view,
    ("GET", "/flags"): flags_view,
    ("GET", "/delivery"): delivery_view,
    ("GET", "/pending"): pending_view,
    ("GET", "/flag"): flag_view,
    ("POST", "/flag"): flag_view,
}
"""The views by method and path below PREFIX."""
_SETS: Final = "/sets/"
"""Below PREFIX and before NAMESPACE/NAME: the base URL of OpenFeature's manifest API for one flag set."""
_ROLLOUTS: Final = "/rollouts/"
"""Below PREFIX and before NAMESPACE/NAME/promoted: whether a FlagRollout has promoted a commit."""
_MOST_FIELDS: Final = 200


def respond(request: Request, source: PageSource, now: datetime) -> Response:
    """Return the response to a request below `/ui`; it changes nothing."""
    method = "GET" if request.method == "HEAD" else request.method
    path = request.path.removeprefix(PREFIX).rstrip("/")
    if method == "GET" and path.startswith(_SETS) and path.endswith(manifest.PATH):
        return _manifest(path.removeprefix(_SETS).removesuffix(manifest.PATH), source)
    if path.startswith(_ROLLOUTS) and path.endswith("/promoted"):
        return _promoted(path.removeprefix(_ROLLOUTS).removesuffix("/promoted"), request, source)
    view = VIEWS.get((method, path))
    if view is None:
        return Response(404, b"there is no such page\n", (("content-type", "text/plain"), *SAFE))
    form = request.body.decode("utf-8", "replace") if method == "POST" else ""
    view_name, query = path.strip("/") or "flags", _fields(request.query)
    visit = Visit(view_name, query, _fields(form), source, now, has_form=method == "POST")
    try:
        return view(visit)
    except NotShown as missing:
        return page("missing.html", 404, visit=visit, message=str(missing))


def _manifest(name: str, source: PageSource) -> Response:
    """The flags of a set as Git defines them: code is generated for these, not for an override."""
    shown = source.shown_set(name)
    if shown is None:
        return manifest.refusal(404, f"there is no flag set {name!r}, or you may not see it", *SAFE)
    response = at_once(manifest.manifest_answer(shown.flag_set.flags.values()))
    return response._replace(headers=(*response.headers, *SAFE))


def _promoted(rollout: str, request: Request, source: PageSource) -> Response:
    """Answer a webhook of a FlagRollout of another cluster, whose payload names the commit, or anybody who
    names it in the query. Only 200 says yes: 409 tells how far it is.
    """
    revision = _fields(request.query).get("revision", "")
    if not revision and request.body:
        with suppress(ValueError):
            payload = orjson.loads(request.body)
            revision = str(payload.get("revision") or "") if isinstance(payload, dict) else ""
    if not is_revision(revision):
        return _say(400, "name a commit: ?revision=main@sha1:…, or `revision` in a JSON object")
    promotion = source.promotion(rollout, revision)
    if promotion is None:
        return _say(404, f"there is no FlagRollout {rollout}, or you may not see it")
    return _say(200 if promotion.done else 409, promotion.message, promotion.state)


def _say(status: int, message: str, state: str = "") -> Response:
    content = {"state": state, "message": message} if state else {"message": message}
    return Response(status, orjson.dumps(content), (*JSON, ("cache-control", "no-store"), *SAFE))


def _fields(text: str) -> dict[str, str]:
    """The fields of a query or a form; of a repeated one the last."""
    try:
        return dict(parse_qsl(text, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


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
        """`/ui`, to which `/` leads, its views, its files, and the stream of changes."""
        return Routes(
            http={
                ("GET", "/"): lambda _: Response(302, b"", (("location", PREFIX), *SAFE)),
                ("GET", PREFIX): self.answer,
                ("GET", f"{PREFIX}/*"): self.answer,
                ("POST", f"{PREFIX}/*"): self.answer,
                **{(write, f"{PREFIX}{_SETS}*"): manifest.refuse_write for write in manifest.WRITES},
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
    return Request(request.method, request.path, request.query, headers, request.body, request.peer)
