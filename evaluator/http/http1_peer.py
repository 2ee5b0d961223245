"""HTTP/1.1 (RFC 9112) on one connection: requests as httptools parses them, responses in their order.

A request is answered after the whole read is parsed, so that a peer that asks for much and reads nothing
waits in a queue of small requests, never of large responses. Behind a response that lasts, requests wait too,
and no more of them are read.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.http.deferred import Deferred, Job, Result
from evaluator.http.dispatch import check_headers, response_of
from evaluator.http.http1_reader import Phase, Reader, held_by
from evaluator.http.messages import (
    BODILESS,
    SIZED,
    Code,
    Headers,
    Response,
    Streamed,
    header,
    reason_phrase,
    refusal,
)
from evaluator.http.peer import BATCH_BYTES, QUIET_SECONDS, Peer, Port
from evaluator.http.stream import ServerStream

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence


_LAST_CHUNK: Final = b"0\r\n\r\n"


class BodyOwner(Peer):
    """A connection as the body that it sends sees it."""

    __slots__ = ()

    @abstractmethod
    def body_ended(self) -> None:
        """Continue with the next request."""

    @abstractmethod
    def break_off(self) -> None:
        """Close the connection without completing the body."""


class Http1Body:
    """A body that lasts: of its head's length, in chunks (RFC 9112, 7.1), or until the connection ends."""

    __slots__ = ("_chunked", "_head", "_peer")

    def __init__(self, peer: BodyOwner, head: bytes, *, chunked: bool) -> None:
        """Take whether the body is chunked; if not, its length or the end of the connection ends it."""
        self._peer = peer
        self._head = head
        """Goes out with the first piece, or by itself if that does not come at once."""
        self._chunked = chunked

    @property
    def writable(self) -> bool:
        """See StreamTransport."""
        return not self._peer.paused

    def start(self) -> None:
        """See StreamTransport."""
        if self._head:
            self._write(b"")

    def send(self, pieces: Sequence[bytes]) -> bool:
        """See StreamTransport."""
        if self._peer.paused:
            return False
        # An empty chunk would end the body.
        if piece := b"".join(pieces):
            self._write(self._frame(piece))
        return True

    def end(self, last: bytes) -> None:
        """See StreamTransport."""
        self._write((self._frame(last) if last else b"") + (_LAST_CHUNK if self._chunked else b""))
        self._peer.body_ended()

    def break_off(self) -> None:
        """End without the last chunk or the whole length: the client sees an incomplete body."""
        self._peer.break_off()

    def forget(self) -> None:
        """See StreamTransport."""
        self._peer.body_ended()

    def _frame(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    def _write(self, output: bytes) -> None:
        head, self._head = self._head, b""
        self._peer.write(head + output)


log = logging.getLogger(__name__)

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


_Fields: TypeAlias = tuple[Headers, Headers, str, str]
"""A response's headers, more of them, its `connection` and its `date`."""
_heads: Final[dict[int, tuple[_Fields, bytes]]] = {}
"""The newest head of each status: comparing it costs a third of hashing all that it is made of."""


def _head(status: int, fields: _Fields) -> bytes:
    """Return a response's head without its last header. Raises ValueError for forbidden headers."""
    newest = _heads.get(status)
    if newest is not None and newest[0] == fields:
        return newest[1]
    head = _write_head(status, *fields)
    _heads[status] = fields, head
    return head


def _write_head(status: int, headers: Headers, more: Headers, connection: str, date: str) -> bytes:
    fields = (*headers, *more, *((("connection", connection),) if connection else ()), ("date", date))
    check_headers(fields)
    lines = [f"HTTP/1.1 {status} {reason_phrase(status)}", *(f"{n}: {v}" for n, v in fields)]
    return "\r\n".join((*lines, "")).encode("latin-1")


def encode(
    response: Response, more: Headers, date: str, *, connection: str = "", head_only: bool = False
) -> bytes:
    """`response` as bytes. `head_only` answers HEAD: the length of a body that is not sent."""
    status, body, headers = response
    try:
        head = _head(status, (headers, more, connection, date))
    except ValueError:
        log.exception("a response cannot be sent")
        return encode(refusal(500), more, date, connection=connection, head_only=head_only)
    if status in BODILESS:
        return head + b"\r\n"
    head = b"%bcontent-length: %d\r\n\r\n" % (head, len(body))
    return head if head_only else head + body


class Http1Peer(BodyOwner):
    """One HTTP/1.1 connection."""

    __slots__ = ("_answering", "_job", "_reader", "_request_bytes", "_stream")

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self._reader = Reader(port, clock)
        self._stream: ServerStream | None = None
        """The response in progress, if it is a stream."""
        self._job: Job[Response] | None = None
        """The response in progress, if it is deferred."""
        self._request_bytes = 0
        """Bytes of the request that is being answered."""
        self._answering = False

    def adopt(self, transport: asyncio.Transport, name: str) -> None:
        """Take the connection over."""
        super().adopt(transport, name)
        self._reader.peer = name

    @property
    def waiting_requests(self) -> int:
        """Return how many requests wait."""
        return len(self._reader.queue)

    # -- bytes in --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse `data` and answer what it completes (asyncio calls this)."""
        reader, at_once = self._reader, self.start_turn(len(data))
        if self.ended is None and reader.keep:
            reader.feed(data)
            if at_once:
                self._answer()
            self.update_held()

    def eof_received(self) -> bool:
        """Handle the peer's end of sending; stay open while responses are pending (asyncio calls this). A
        peer that reads a stream has most likely disconnected: nothing else would show that before the next
        write.
        """
        reader = self._reader
        if self.ended is None and (self._job or (reader.pending and self._stream is None)):
            reader.finish()
            # TLS ends both directions at once: the peer will not read pending responses.
            return self.transport.can_write_eof()
        return False

    # -- bytes out -------------------------------------------------------------------------------------------

    def _answer(self, now: float | None = None) -> None:
        """Answer what waits while the peer takes it (waited until `now`), then refuse or end what is due."""
        if self._answering:
            return
        self._answering = True
        out: list[bytes] = []
        size, reader = 0, self._reader
        pending = reader.pending
        while pending and not (self.paused or self._busy):
            if not reader.queue:
                reader.read_on()
            if reader.queue:
                size = self._answer_next(now, out, size)
            pending = reader.pending
            if pending and self.out_of_time():
                break
        self._answering = False
        if not self._busy:
            self._conclude(out, pending=pending)
        elif pending:
            self.transport.pause_reading()

    def _answer_next(self, now: float | None, out: list[bytes], size: int) -> int:
        """Answer the first that waits, by `out`, of so many bytes; how many there are then."""
        port, reader = self.port, self._reader
        request, since, connection, chunked = reader.queue.popleft()
        self.active = since if now is None else now
        if now is not None:
            request.waited = now - since
        if port.draining:
            reader.end()
            connection = "close"
        (answer, more), head_only = port.dispatch.answer(request), request.method == "HEAD"
        if isinstance(answer, Response):
            response = encode(answer, more, port.date, connection=connection, head_only=head_only)
            out.append(response)
            size += len(response)
            if size <= BATCH_BYTES:
                return size
        self.write(b"".join(out))
        out.clear()
        if isinstance(answer, Streamed):
            self._request_bytes = held_by(request)
            self._begin_stream(answer, more, connection, chunked=chunked, head_only=head_only)
        elif isinstance(answer, Deferred):
            self._request_bytes = held_by(request)
            self._respond_later(answer, more, connection, head_only=head_only)
        return 0

    @property
    def _busy(self) -> bool:
        """Return whether the response to the last request that was begun is not complete."""
        return self._stream is not None or self._job is not None

    def _respond_later(
        self, answer: Deferred[Response], more: Headers, connection: str, *, head_only: bool
    ) -> None:
        """Have a response made, and write it then."""

        def answer_made(result: Result[Response]) -> None:
            self._job = None
            date, response = self.port.date, response_of(result)
            self.write(encode(response, more, date, connection=connection, head_only=head_only))
            self.answer_waiting()

        self._job = self.defer(answer, answer_made)

    def _conclude(self, out: list[bytes], *, pending: bool) -> None:
        """Write `out`, and what follows it once all is answered; what is pending has another turn."""
        reader = self._reader
        last = not (pending or reader.keep)
        if last and reader.refused:
            refused = reader.refusal or refusal(reader.refused)
            out.append(encode(refused, (), self.port.date, connection="close"))
        elif reader.expects and not pending:
            reader.expects = False
            out.append(_CONTINUE)
        self.write(out[0] if len(out) == 1 else b"".join(out))
        if last:
            self.finish()
        elif pending and not self.paused:
            self.answer_later()

    def _begin_stream(
        self, answer: Streamed, more: Headers, connection: str, *, chunked: bool, head_only: bool
    ) -> None:
        """Begin a stream; for HEAD only its head is sent."""
        sized = header(answer.headers, "content-length") is not None
        if sized:
            chunked = False
        elif not chunked:
            self._reader.end()
            connection = "close"
        head = _head(answer.status, (answer.headers, more, connection, self.port.date))
        head += b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n"
        if head_only:
            self.write(head)
            return
        until = None if answer.seconds is None else self.clock() + answer.seconds
        transport = Http1Body(self, head, chunked=chunked)
        self._stream = stream = ServerStream(transport, SIZED if sized else answer.framing, until)
        stream.begin(answer.start, "a streamed response")

    # -- what a response that lasts asks ---------------------------------------------------------------------

    def body_ended(self) -> None:
        """Continue with the next request."""
        self._stream = None
        self.answer_waiting()

    def answer_waiting(self) -> None:
        """Answer waiting requests."""
        self.active = now = self.clock()
        self._reader.resume(now)
        if not (self.paused or self.transport.is_closing()):
            self.transport.resume_reading()
        self._answer(now)
        self.update_held()

    def break_off(self) -> None:
        """Close the connection without completing the body."""
        self._stream = None
        self._reader.end()
        self.transport.close()

    # -- time, back-pressure and the end ---------------------------------------------------------------------

    def resume(self) -> None:
        """Continue to answer, or offer the transport to the stream."""
        if self._stream is not None:
            self._stream.notify_writable()
        self._answer(self.clock())
        self.update_held()

    def measure(self) -> int:
        """Messages of a stream do not count: most are the same bytes for many peers."""
        unread = self.transport.get_write_buffer_size() if self.paused and self._stream is None else 0
        return self._reader.held_bytes + unread + (self._request_bytes if self._busy else 0)

    def refuse(self) -> None:
        """429, unless a response is under way or the peer reads nothing."""
        if self._busy or self.paused:
            self.transport.abort()
        else:
            self._reader.refuse(429)
            self._answer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the connection and its stream (asyncio calls this)."""
        super().connection_lost(exc)
        self._reader.drop()
        if self._stream is not None:
            self._stream.abort()

    def cut(self) -> None:
        """End the response that lasts, and the connection."""
        if self._stream is not None:
            self._stream.end(Code.UNAVAILABLE, "shutting down")
        super().cut()

    def check(self, now: float) -> None:
        """End a late response, answer a slow request with 408, and close an idle connection."""
        limits, stream, reader = self.port.limits, self._stream, self._reader
        if stream is not None:
            if stream.deadline is not None and now >= stream.deadline:
                stream.end(Code.DEADLINE_EXCEEDED, "deadline exceeded")
        elif self._job is not None or reader.pending:
            return
        elif reader.phase is Phase.IDLE:
            patience = min(QUIET_SECONDS, limits.idle_seconds) if self.port.draining else limits.idle_seconds
            if now - self.active > patience:
                self.finish()
        elif now - reader.since > (
            limits.header_seconds if reader.phase is Phase.HEAD else limits.body_seconds
        ):
            reader.refuse(408)
            self._answer()
