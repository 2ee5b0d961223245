"""HTTP/1.1 (RFC 9112) on one connection: requests as httptools parses them, responses in their order.

A request is answered after the whole read is parsed, so that a peer that asks for much and reads nothing waits in a queue of
small requests, never of large responses. Behind a response that lasts, requests wait too, and no more of them are read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import httptools

from evaluator.http.backlog import TURN_SECONDS
from evaluator.http.chunked import ChunkedBody
from evaluator.http.dispatch import split_target
from evaluator.http.peer import BATCH_BYTES, QUIET_SECONDS, Peer, Port
from evaluator.http.routes import Code, Deferred, Headers, Request, Response, Streamed, header
from evaluator.http.statuses import BODILESS, reason_phrase, refusal
from evaluator.http.streaming import response_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.slices import Job, Result

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Phase(IntEnum):
    IDLE = 0
    HEAD = 1
    BODY = 2


class _Refused(Exception):
    """Stops the parser: the request will not be read further."""


@lru_cache(maxsize=256)
def _head(status: int, headers: Headers, connection: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {reason_phrase(status)}", *(f"{n}: {v}" for n, v in headers)]
    if connection:
        lines.append(f"connection: {connection}")
    return "\r\n".join((*lines, "date: ")).encode("latin-1")


def encode(
    response: Response, date: str, *, connection: str = "", head_only: bool = False
) -> bytes:
    """`response` as bytes. `head_only` answers HEAD: the length of a body that is not sent."""
    start = _head(response.status, response.headers, connection) + date.encode()
    if response.status in BODILESS:
        return start + b"\r\n\r\n"
    end = start + b"\r\ncontent-length: %d\r\n\r\n" % len(response.body)
    return end if head_only else end + response.body


class Http1Peer(Peer):
    """One HTTP/1.1 connection. Methods named on_* are httptools' callbacks."""

    __slots__ = (
        "_answering", "_body", "_expects", "_fields", "_head_size", "_job", "_keep", "_keeps", "_large", "_method", "_parser", "_phase", "_queue", "_refused", "_since",
        "_size", "_spliced", "_stream", "_target", "_version",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self._parser: Any = httptools.HttpRequestParser(self)
        self._queue: deque[tuple[Request, float, str, bool]] = deque()
        """Requests to answer: each with when it began to come, the `connection` header of its response, and whether that may be in chunks."""
        self._stream: ChunkedBody | None = None
        """The response that is being sent, if it lasts."""
        self._job: Job[Response] | None = None
        """The response that is being made, if it is deferred."""
        self._answering = False
        self._large: Response | None = None
        """What a request whose body is too large is told, behind the queue."""
        self._refused = 0
        """Status that ends the connection once the queue is answered."""
        self._keep = True
        """False after a request that is the connection's last."""
        self._expects = False
        self._spliced = False
        self._phase = _Phase.IDLE
        self._since = 0.0
        self._begin()

    # -- bytes in ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse `data` and answer what it completes (asyncio calls this)."""
        if self.ended is not None or self._stopped():
            return
        if self._phase is _Phase.IDLE:
            self._receive(data)
        else:
            self._receive_more(data)
        self._answer()

    def _receive(self, data: bytes) -> None:
        """Bytes that begin with a request: known ones are taken as they are, the rest is parsed."""
        heads, queue, at = self.port.heads, self._queue, 0
        while at < len(data) and (found := heads.take(data, at, self.name)):
            request, at = found
            self.active = self.clock()
            queue.append((request, self.active, "", True))
        if at == len(data):
            return
        data, before = data[at:], len(queue)
        self._parse(data)
        if self._phase is _Phase.IDLE and len(queue) == before + 1 and not self._stopped():
            request, _, connection, chunked = queue[-1]
            if chunked and not connection:
                heads.learn(data, request)

    def _receive_more(self, data: bytes) -> None:
        # The parser keeps an unfinished name or value to itself, so its size shows only in what was fed.
        within = self._phase is _Phase.HEAD
        self._parse(data)
        if within and self._phase is _Phase.HEAD and not self._refused:
            self._head_size += len(data)
            self._refused = 431 if self._head_size > self.port.limits.header_bytes else 0

    def eof_received(self) -> bool:
        """The peer sends no more; stay while it is owed responses (asyncio calls this).

        One that was reading a response that lasts has most likely gone: nothing else would tell before we next write.
        """
        if self.ended is None and (self._job or (self._queue and self._stream is None)):
            self._keep = False
            # TLS ends both halves at once: the peer will not read what it is owed.
            return self.transport.can_write_eof()
        return False

    def _parse(self, data: bytes) -> None:
        while not self._stopped():
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # We upgrade nothing, but the parser stops here, before the body if there is one.
                data = self._body_framing() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserError:
                self._refused = self._refused if self._stopped() else 400
            else:
                return

    def _stopped(self) -> bool:
        """Whether nothing more is to be read."""
        return self._refused != 0 or not self._keep

    def _body_framing(self) -> bytes:
        """A head that makes a fresh parser read the body of the request at hand, which keeps its own head."""
        if not self._spliced:
            return b""
        names = ("content-length", "transfer-encoding")
        lines = [f"{n}: {v}\r\n" for n, v in self._fields if n in names]
        return f"POST / HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    # -- httptools -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._target = b""
        self._version = self._method = ""
        self._keeps = True
        self._fields: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._head_size = self._size = 0

    def _refuse(self, status: int) -> None:
        self._refused = status
        raise _Refused

    def _refuse_body(self) -> None:
        path, _ = split_target(self._target.decode("latin-1"))
        self._large = self.port.dispatch.too_large(path, tuple(self._fields))
        self._refuse(413)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._spliced:
            return
        self._begin()
        self._phase = _Phase.HEAD
        self._since = self.active = self.clock()

    def on_url(self, piece: bytes) -> None:
        """A piece of the request target."""
        if not self._spliced:
            self._target += piece
            self._count(len(piece))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: trailers count and are dropped."""
        self._count(len(name) + len(value))
        if self._phase is _Phase.HEAD:
            self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self.port.limits.header_bytes:
            self._refuse(431)

    def on_headers_complete(self) -> None:
        """The end of a head: refuse here what need not be read."""
        if self._spliced:
            self._spliced = False
            return
        parser, self._phase, self._since = self._parser, _Phase.BODY, self.clock()
        # Read here: the parser that completes the message may be a fresh one.
        self._version, self._method = parser.get_http_version(), parser.get_method().decode()
        self._keeps = parser.should_keep_alive() and self._method != "CONNECT"
        hosts = [value for name, value in self._fields if name == "host"]
        if len(hosts) > 1 or (self._version == "1.1" and not hosts):
            self._refuse(400)
        headers = tuple(self._fields)
        length, limit = header(headers, "content-length"), self.port.limits.body_bytes
        if limit and length is not None and int(length) > limit:
            self._refuse_body()
        self._expects = (
            self._version == "1.1" and (header(headers, "expect") or "").lower() == "100-continue"
        )
        framed = (length or "0") != "0" or header(headers, "transfer-encoding") is not None
        self._spliced = framed and parser.should_upgrade()

    def on_body(self, piece: bytes) -> None:
        """A piece of the body."""
        self._expects = False
        self._size += len(piece)
        if self.port.limits.body_bytes and self._size > self.port.limits.body_bytes:
            self._refuse_body()
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._spliced:
            return
        self._phase = _Phase.IDLE
        self._expects = False
        path, query = split_target(self._target.decode("latin-1"))
        request = Request(
            self._method, path, query, tuple(self._fields), b"".join(self._body), self.name
        )
        self._keep = self._keeps
        old = self._version == "1.0"
        keep = "keep-alive" if old else ""
        self._queue.append((request, self.active, keep if self._keep else "close", not old))
        self._begin()

    # -- bytes out -----------------------------------------------------------------------------------------------

    def _answer(self, now: float | None = None) -> None:
        """From `now` on, where requests have waited, answer the queue for as long as the peer takes it, then refuse or end what is to be refused or ended."""
        if self._answering:
            return
        self._answering = True
        out: list[bytes] = []
        size, port = 0, self.port
        stopwatch = port.backlog.stopwatch
        until = stopwatch() + TURN_SECONDS
        while self._queue and not (self.paused or self._busy) and stopwatch() < until:
            request, connection, chunked = self._next(now)
            answer, head_only = port.dispatch.answer(request), request.method == "HEAD"
            if isinstance(answer, Response):
                out.append(encode(answer, port.date, connection=connection, head_only=head_only))
                size += len(out[-1])
                if size <= BATCH_BYTES:
                    continue
            self.write(b"".join(out))
            out, size = [], 0
            if isinstance(answer, Streamed):
                out = self._begin_stream(request.method, answer, connection, chunked)
            elif isinstance(answer, Deferred):
                self._make(answer, connection, head_only=head_only)
        self._answering = False
        if not self._busy:
            self._conclude(out)
            if self._queue and not self.paused:
                self.answer_later()
        elif self._queue:
            self.transport.pause_reading()

    def _next(self, now: float | None) -> tuple[Request, str, bool]:
        """The first of the queue: its request, the `connection` header of its response, whether that may be in chunks."""
        request, since, connection, chunked = self._queue.popleft()
        if now is not None:
            request = replace(request, waited=now - since)
        if self.port.draining:
            self._queue.clear()
            self._keep, self._refused, connection = False, 0, "close"
        return request, connection, chunked

    @property
    def _busy(self) -> bool:
        """Whether the response to the last request that was begun is still to end."""
        return self._stream is not None or self._job is not None

    def _make(self, answer: Deferred[Response], connection: str, *, head_only: bool) -> None:
        """Have a response made, and write it then."""

        def made(result: Result[Response]) -> None:
            self._job = None
            response = response_of(result)
            self.write(encode(response, self.port.date, connection=connection, head_only=head_only))
            self.go_on()

        self._job = self.port.slices.start(answer.timed(self.clock), made)

    def _conclude(self, out: list[bytes]) -> None:
        """Write `out`, and what follows a queue that is answered."""
        last = not self._queue and self._stopped()
        if not self._queue and self._refused:
            large = self._large if self._refused == 413 else None
            refused = large or refusal(self._refused)
            out.append(encode(refused, self.port.date, connection="close"))
        elif not self._queue and self._expects:
            self._expects = False
            out.append(_CONTINUE)
        self.write(b"".join(out))
        if last:
            self.finish()

    def _begin_stream(
        self, method: str, answer: Streamed, connection: str, chunked: bool
    ) -> list[bytes]:
        """Begin a response that lasts; what is still to be written of it, if it does not."""
        sized = header(answer.headers, "content-length") is not None
        if sized:
            chunked = False
        elif not chunked:
            self._queue.clear()
            self._keep, self._refused, connection = False, 0, "close"
        head = _head(answer.status, answer.headers, connection) + self.port.date.encode()
        head += b"\r\ntransfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n\r\n"
        if method == "HEAD":
            return [head]
        until = None if answer.seconds is None else self.clock() + answer.seconds
        self._stream = stream = ChunkedBody(
            self, head, answer.ending, until, chunked=chunked, sized=sized
        )
        stream.begin(answer.start)
        stream.flush()
        return []

    # -- what a response that lasts asks -------------------------------------------------------------------------

    def body_ended(self) -> None:
        """Go on with the request behind it."""
        self._stream = None
        self.go_on()

    def go_on(self) -> None:
        """Answer what has waited."""
        self.active = self._since = now = self.clock()
        if not (self.paused or self.transport.is_closing()):
            self.transport.resume_reading()
        self._answer(now)

    def break_off(self) -> None:
        """Close without another word."""
        self._stream = None
        self._queue.clear()
        self.transport.close()

    # -- time, back-pressure and the end -------------------------------------------------------------------------

    def resumed(self) -> None:
        """Answer on, or offer the transport to the response that lasts."""
        if self._stream is not None:
            self._stream.offer()
        self._answer(self.clock())

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and a response that lasts with it (asyncio calls this)."""
        super().connection_lost(exc)
        self._queue.clear()
        if self._job is not None:
            self._job.cancel()
        if self._stream is not None:
            self._stream.lost()

    def cut(self) -> None:
        """End the response that lasts, and the connection."""
        if self._stream is not None:
            self._stream.end(Code.UNAVAILABLE, "shutting down")
        super().cut()

    def check(self, now: float) -> None:
        """End a response past its deadline; 408 for a slow request; a connection that asks for nothing and is owed nothing goes."""
        limits, stream = self.port.limits, self._stream
        if stream is not None:
            if stream.deadline is not None and now >= stream.deadline:
                stream.end(Code.DEADLINE_EXCEEDED, "deadline exceeded")
        elif self._job is not None or self._queue:
            return
        elif self._phase is _Phase.IDLE:
            patience = (
                min(QUIET_SECONDS, limits.idle_seconds)
                if self.port.draining
                else limits.idle_seconds
            )
            if now - self.active > patience:
                self.finish()
        elif now - self._since > (
            limits.header_seconds if self._phase is _Phase.HEAD else limits.body_seconds
        ):
            self._refused = 408
            self._answer()
