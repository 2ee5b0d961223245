"""Artifacts over HTTP: immutable archives, whole or in part, by the path in a source's status."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

from controller.runtime.setbacks import Setback
from evaluator.host.shares import FairShare
from evaluator.host.threads import FairThreads, work_for
from evaluator.http.limits import Limits
from evaluator.http.messages import ByteStream, Headers, Request, Response, Streamed, header, host_of
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Executor

    from controller.artifacts.storage import Storages, Stored

PIECE: Final = 65_536
"""Bytes; besides one that waits, a transport holds as many."""
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
"""Archives that are sent at a time, half of them to one address; each takes some 200 KB of memory. Beyond
them there is one for each address that has none.
"""
FIRSTS: Final = 64
THREADS: Final = 4
SECONDS: Final = 300.0
"""A client that reads more slowly asks for the rest of it."""
_TYPE: Final = ("content-type", "application/gzip")
_FOREVER: Final = ("cache-control", "private, max-age=31536000, immutable")
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Sending:
    """Sends one part of a file as one body. Only the reading happens in a thread."""

    def __init__(
        self, stored: Stored, part: range, client: str, pool: Executor, ended: Callable[[bool], None]
    ) -> None:
        """`part`: its bytes, at least one; the last piece of a whole file is not sent if its digest differs.
        `client`: whose turn in the pool it takes. `ended` is called once: False if the file was not what it
        should be, or could not be read.
        """
        self._found = stored
        self._part = part
        self._client = client
        self._pool = pool
        self._ended: Callable[[bool], None] | None = ended
        self._left = len(part)
        self._hash = hashlib.sha256()
        self._source: BinaryIO | None = None
        self._reading: asyncio.Future[bytes] | None = None
        self._piece = b""
        """Bytes that were read and are not sent yet."""

    def begin(self, body: ByteStream) -> None:
        """Send until all is sent, or the client is gone."""
        self._body = body
        body.on_writable = self._continue
        body.on_closed = self._close
        self._continue()

    def _continue(self) -> None:
        if self._piece and self._body.writable:
            piece, self._piece = self._piece, b""
            self._body.send(piece)
        if not self._piece and self._reading is None and self._body.writable:
            with work_for(self._client):
                self._reading = asyncio.get_running_loop().run_in_executor(self._pool, self._read)
            self._reading.add_done_callback(self._read_on)

    def _read(self) -> bytes:
        """The next piece. Raises OSError; ValueError where the file is short, or not what it should be."""
        if self._source is None:
            self._source = self._found.file.open("rb")
            self._source.seek(self._part.start)
        wanted = min(PIECE, self._left)
        piece = self._source.read(wanted)
        if len(piece) < wanted:
            raise ValueError("it ends too early")
        if len(self._part) == self._found.size:
            self._hash.update(piece)
            last = wanted == self._left
            if last and f"sha256:{self._hash.hexdigest()}" != self._found.digest:
                raise ValueError("it has another digest")
        return piece

    def _read_on(self, reading: asyncio.Future[bytes]) -> None:
        self._reading = None
        if self._body.closed or reading.cancelled():
            self._close()
        elif reading.exception() is not None:
            self._body.break_off()
            self._close(well=False)
        else:
            self._piece = reading.result()
            self._left -= len(self._piece)
            if self._left == 0:
                self._body.finish(self._piece)
                self._close()
            else:
                self._continue()

    def _close(self, *, well: bool = True) -> None:
        if self._reading is not None:
            # The thread has the file; once it is done, this is called again.
            return
        if self._source is not None:
            self._source.close()
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(well)


@dataclass(slots=True)
class ArtifactServer:
    """Sends archives from their files, a piece at a time: its memory does not depend on their size."""

    archives: Storages
    tokens: Callable[[], Collection[str]]
    """A request must bear one of them, unless there are none."""
    sending: FairShare[str] = field(
        default_factory=lambda: FairShare(AT_ONCE, FIRSTS, resource="archives sent")
    )
    """Archives that are sent at a time, by address."""
    _pool: FairThreads = field(default_factory=lambda: FairThreads(THREADS, resource="archives read"))

    def routes(self) -> Routes:
        """GET and HEAD of `/flagsource/<namespace>/<name>/<file>`."""
        return Routes(http={("GET", f"{PREFIX}*"): self.answer})

    def answer(self, request: Request) -> Response | Streamed:
        """The archive or a part of it; 304, 401, 404, 416; 503 while too many are sent."""
        tokens = self.tokens()
        if tokens and not _is_authorized(request, tokens):
            return Response(401, b"unauthorized\n", (("www-authenticate", "Bearer"),))
        path = request.path[1:]
        stored = self.archives.find(path)
        if stored is None:
            return Response(404, b"no such artifact\n", ())
        answer = _choose(request, stored)
        if isinstance(answer, Response):
            return answer
        client = host_of(request.peer)
        if not self.sending.has_place(client):
            return Response(503, b"too many at a time\n", (("retry-after", "5"),))
        status, headers, part = answer

        def end(well: bool) -> None:
            self.sending.release(client)
            if not well:
                self._pool.submit(_set_aside_damage, partial(self.archives.read, path))

        def start(body: ByteStream) -> None:
            self.sending.hold(client)
            Sending(stored, part, client, self._pool, end).begin(body)

        return Streamed(status, headers, start, seconds=SECONDS)


def _set_aside_damage(read: Callable[[], object]) -> None:
    try:
        read()
    except Setback as setback:
        log.warning("an artifact was not sent completely: %s", setback.message)


def _is_authorized(request: Request, tokens: Collection[str]) -> bool:
    scheme, _, token = (header(request.headers, "authorization") or "").partition(" ")
    given = token.strip().encode()
    # Every token is compared, so that the time discloses nothing.
    matches = [hmac.compare_digest(given, known.encode()) for known in tokens]
    return scheme.lower() == "bearer" and any(matches)


def _choose(request: Request, stored: Stored) -> Response | tuple[int, Headers, range]:
    """What is answered at once, or the status, headers and bytes of what is sent."""
    size, etag = stored.size, f'"{stored.digest}"'
    headers: Headers = (_TYPE, _FOREVER, ("etag", etag), ("accept-ranges", "bytes"))
    known = header(request.headers, "if-none-match")
    if known is not None and (known.strip() == "*" or etag in known):
        return Response(304, b"", headers)
    whole = 200, (*headers, _length(size)), range(size)
    asked = header(request.headers, "range")
    condition = header(request.headers, "if-range")
    if asked is None or (condition is not None and condition != etag):
        return whole
    part = _RANGE.fullmatch(asked.strip())
    if part is None or part[1] == part[2] == "" or (part[1] and part[2] and int(part[2]) < int(part[1])):
        # A header that is not one valid range may be ignored (RFC 9110, section 14.2).
        return whole
    sent = _bounds(part[1], part[2], size)
    if not sent:
        return Response(416, b"", (("content-range", f"bytes */{size}"),))
    shown = ("content-range", f"bytes {sent.start}-{sent.stop - 1}/{size}")
    return 206, (*headers, shown, _length(len(sent))), sent


def _length(size: int) -> tuple[str, str]:
    return ("content-length", str(size))


def _bounds(first: str, last: str, size: int) -> range:
    """The bytes of `first-last`; of `-n` the last n."""
    if not first:
        return range(max(0, size - int(last)), size)
    return range(int(first), min(int(last) + 1, size) if last else size)
