"""Artifacts for other processes: immutable archives over HTTP, found by the path in a source's status.

An archive never changes under its path, so a client that has it need not ask again; a client may ask for a
part (RFC 9110, 14).
"""

from __future__ import annotations

import hmac
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.artifacts.sending import Part, Sending
from controller.runtime.reconciling.setbacks import Setback
from evaluator.http.messages import Response, Streamed, header
from evaluator.http.routes import Routes
from evaluator.http.server.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from controller.artifacts.storages import Storages, Stored
    from evaluator.http.messages import ByteStream, Headers, Request

log = logging.getLogger(__name__)

PREFIX: Final = "/flagsource/"
LIMITS: Final = Limits(
    header_bytes=65_536,
    connections=1_000,
    connections_per_host=500,
    streams_per_connection=32,
    idle_seconds=30.0,
)
AT_ONCE: Final = 256
"""Archives that are being sent; each takes some 200 KB of memory."""
THREADS: Final = 4
SECONDS: Final = 300.0
"""A client that reads more slowly asks for the rest of it."""
_TYPE: Final = ("content-type", "application/gzip")
_FOREVER: Final = ("cache-control", "private, max-age=31536000, immutable")
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(slots=True)
class ArtifactServer:
    """Sends archives from their files, a piece at a time: its memory does not depend on their size."""

    archives: Storages
    tokens: Callable[[], Collection[str]]
    """A request must bear one of them, unless there are none."""
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "send"))
    _sending: int = 0

    def routes(self) -> Routes:
        """GET and HEAD of `/flagsource/<namespace>/<name>/<file>`."""
        return Routes(http={("GET", f"{PREFIX}*"): self.answer})

    def answer(self, request: Request) -> Response | Streamed:
        """The archive or a part of it; 304, 401, 404, 416; 503 while too many are sent."""
        tokens = self.tokens()
        if tokens and not _believed(request, tokens):
            return Response(401, b"unauthorized\n", (("www-authenticate", "Bearer"),))
        path = request.path[1:]
        found = self.archives.find(path)
        if found is None:
            return Response(404, b"no such artifact\n", ())
        answer = _choose(request, found)
        if isinstance(answer, Response):
            return answer
        if self._sending >= AT_ONCE:
            return Response(503, b"too many at a time\n", (("retry-after", "5"),))
        return self._streamed(answer, partial(self.archives.read, path))

    def _streamed(self, chosen: _Chosen, read: Callable[[], object]) -> Streamed:
        def ended(well: bool) -> None:
            self._sending -= 1
            if not well:
                self._pool.submit(_looked_at, read)

        def start(body: ByteStream) -> None:
            self._sending += 1
            Sending(chosen.part, self._pool, ended).begin(body)

        return Streamed(chosen.status, chosen.headers, start, seconds=SECONDS)


def _looked_at(read: Callable[[], object]) -> None:
    try:
        read()
    except Setback as setback:
        log.warning("an artifact was not sent completely: %s", setback.message)


def _believed(request: Request, tokens: Collection[str]) -> bool:
    scheme, _, token = (header(request.headers, "authorization") or "").partition(" ")
    given = token.strip().encode()
    # Every token is compared, so that the time discloses nothing.
    matches = [hmac.compare_digest(given, known.encode()) for known in tokens]
    return scheme.lower() == "bearer" and any(matches)


@dataclass(frozen=True, slots=True)
class _Chosen:
    status: int
    headers: Headers
    part: Part


def _choose(request: Request, found: Stored) -> Response | _Chosen:
    size, etag = found.size, f'"{found.digest}"'
    headers: Headers = (_TYPE, _FOREVER, ("etag", etag), ("accept-ranges", "bytes"))
    known = header(request.headers, "if-none-match")
    if known is not None and (known.strip() == "*" or etag in known):
        return Response(304, b"", headers)
    whole = _Chosen(200, (*headers, _length(size)), Part(found.file, 0, size, found.digest))
    asked = header(request.headers, "range")
    condition = header(request.headers, "if-range")
    if asked is None or (condition is not None and condition != etag):
        return whole
    part = _RANGE.fullmatch(asked.strip())
    if part is None or part[1] == part[2] == "" or (part[1] and part[2] and int(part[2]) < int(part[1])):
        # What is no single sound range is not understood, and the whole is a right answer.
        return whole
    start, end = _bounds(part[1], part[2], size)
    if start >= size or end < start:
        return Response(416, b"", (("content-range", f"bytes */{size}"),))
    length = end + 1 - start
    range_ = ("content-range", f"bytes {start}-{end}/{size}")
    return _Chosen(206, (*headers, range_, _length(length)), Part(found.file, start, length))


def _length(size: int) -> tuple[str, str]:
    return ("content-length", str(size))


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """Inclusive; `-n` is the last n bytes."""
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1
