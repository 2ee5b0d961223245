"""HTTP/2 on one connection: what the state machine reports, to handlers, and what they answer, back.

Whatever one read brings is answered in one write. While the transport or flow control holds back too much, requests wait
unanswered, so that a peer that reads nothing makes us keep small requests and not large responses.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from evaluator.http.connection import (
    BodyTooLarge,
    Connection,
    ConnectionClosed,
    Event,
    HeadersReceived,
    HeadersTooLarge,
    RequestReceived,
    StreamClosed,
    Writable,
)
from evaluator.http.dispatch import refusal, split_target
from evaluator.http.frames import ErrorCode
from evaluator.http.framing import START, TRAILERS, frame, only_message, trailers_only
from evaluator.http.hpack import encode_block
from evaluator.http.peer import BATCH_BYTES, QUIET_SECONDS, Peer, Port
from evaluator.http.routes import Code, Headers, Request, Response, RpcError, header
from evaluator.http.rpc import Rpc, ServerStream, Streaming, Unary, choose, deadline, is_grpc
from evaluator.http.streams import BODIES_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_KNOWN: Final = 64
_KNOWN_BYTES: Final = 4_096
_BODILESS: Final = frozenset({204, 304})


@lru_cache(maxsize=256)
def _start(status: int, headers: Headers) -> bytes:
    return encode_block(((":status", str(status)), *headers))


def _failed(call: str) -> RpcError:
    _log.exception("%s failed", call)
    return RpcError(Code.INTERNAL, "internal error")


class Http2Peer(Peer):
    """One HTTP/2 connection."""

    __slots__ = (
        "_batching", "_block_since", "_bodies", "_heard", "_known", "_left_at", "_parted", "_streams", "_waiting",
        "connection",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self.connection = Connection(port.limits)
        self._waiting: deque[RequestReceived] = deque()
        """Requests to answer."""
        self._streams: dict[int, ServerStream] = {}
        """Server streams; whoever was offered the transport last stands last."""
        self._bodies: dict[int, float] = {}
        """Since when we wait for a body."""
        self._known: dict[int, tuple[Headers, Rpc | None]] = {}
        """What earlier headers were for, by identity: the decoder gives the same tuple for the same bytes."""
        self._batching = False
        """What is sent now is written by whoever set this."""
        self._heard = self._block_since = self.active
        self._left_at: float | None = None
        """When we asked the peer to open no more streams."""
        self._parted = False
        """We have said which stream was the last."""

    # -- bytes in ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take in what `data` completes, and answer it (asyncio calls this)."""
        if self.ended is not None:
            return
        self._heard = self.clock()
        self._batching = True
        events = self.connection.receive(data)
        for event in events:
            if type(event) is RequestReceived:
                self._waiting.append(event)
                if self._bodies:
                    self._bodies.pop(event.stream_id, None)
            else:
                self._notice(event)
        if events or not self.connection.header_block_open:
            self._block_since = self._heard
        self._answer()
        self._batching = False
        self._part()

    def _notice(self, event: Event) -> None:
        match event:
            case HeadersReceived(stream_id):
                self._bodies[stream_id] = self._heard
            case HeadersTooLarge(stream_id):
                self._respond(stream_id, refusal(431))
            case BodyTooLarge(stream_id, headers):
                self._bodies.pop(stream_id, None)
                if is_grpc(headers):
                    self._end(stream_id, RpcError(Code.RESOURCE_EXHAUSTED, "request too large"))
                else:
                    self._respond(stream_id, refusal(413))
            case StreamClosed(stream_id):
                self._bodies.pop(stream_id, None)
                if stream_id in self._streams:
                    self._streams[stream_id].lost()
            case Writable(stream_id):
                if stream_id in self._streams:
                    self._streams[stream_id].offer()
            case ConnectionClosed():
                # Its GOAWAY is in the output, and has to be written before the connection ends.
                self._answer()
                self._lose()
                self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and its streams with it (asyncio calls this)."""
        super().connection_lost(exc)
        self._lose()

    def _lose(self) -> None:
        self._waiting.clear()
        for stream in tuple(self._streams.values()):
            stream.lost()

    # -- answers -------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Answer what waits for as long as the peer takes it, then write what is left to write."""
        waiting, connection, most = (
            self._waiting,
            self.connection,
            self.port.limits.write_buffer_bytes,
        )
        if waiting:
            self.active = self._heard
        while waiting and not self.paused and connection.waiting_bytes <= most:
            size = 0
            while waiting and size < BATCH_BYTES:
                event = waiting.popleft()
                if connection.is_open(event.stream_id):
                    size += self._serve(event)
            self.write(connection.take_output())
        if waiting:
            self._refuse_excess()
        self.write(connection.take_output())

    def _refuse_excess(self) -> None:
        """What waits is kept within bounds too; a refused stream is safe to try again."""
        kept = sum(len(event.body) for event in self._waiting)
        while kept > BODIES_BYTES:
            event = self._waiting.pop()
            kept -= len(event.body)
            self.connection.reset(event.stream_id, ErrorCode.REFUSED_STREAM)

    def _serve(self, event: RequestReceived) -> int:
        """Answer one request; about how many bytes that took."""
        known = self._known.get(id(event.headers))
        rpc = known[1] if known is not None else self._learn(event.headers)
        if type(rpc) is Unary:
            return self._unary(event, rpc)
        if type(rpc) is Streaming:
            self._open(event, rpc)
        elif type(rpc) is bytes:
            self.connection.send_headers(event.stream_id, rpc, end_stream=True)
        elif type(rpc) is Response:
            return self._respond(event.stream_id, rpc)
        else:
            return self._plain(event)
        return 0

    def _learn(self, headers: Headers) -> Rpc | None:
        if len(self._known) >= _KNOWN:
            self._known.clear()
        rpc = choose(self.port.routes, headers, self.name)
        if sum(len(value) for _, value in headers) <= _KNOWN_BYTES:
            self._known[id(headers)] = headers, rpc
        return rpc

    def _unary(self, event: RequestReceived, rpc: Unary) -> int:
        try:
            request = only_message(event.body, rpc.encoding, self.port.limits.body_bytes)
            response = frame(rpc.handler(rpc.call, request))
        except RpcError as error:
            self._end(event.stream_id, error)
        except Exception:  # noqa: BLE001 - _failed logs it
            self._end(event.stream_id, _failed(rpc.call.path))
        else:
            self.connection.send_response(event.stream_id, START, response, TRAILERS)
            return len(response)
        return 0

    def _open(self, event: RequestReceived, rpc: Streaming) -> None:
        stream_id, call = event.stream_id, rpc.call
        stream = ServerStream(self, stream_id, None)
        try:
            stream.deadline = deadline(call.headers, self.clock())
            request = only_message(event.body, rpc.encoding, self.port.limits.body_bytes)
            self._streams[stream_id] = stream
            rpc.handler(call, request, stream)
        except RpcError as error:
            stream.close(error.code, error.message)
        except Exception:  # noqa: BLE001 - _failed logs it
            failure = _failed(call.path)
            stream.close(failure.code, failure.message)
        else:
            stream.start()

    def _end(self, stream_id: int, error: RpcError) -> None:
        block = trailers_only(error.code, error.message)
        self.connection.send_headers(stream_id, block, end_stream=True)

    def _plain(self, event: RequestReceived) -> int:
        headers = event.headers
        method, authority = header(headers, ":method") or "", header(headers, ":authority")
        path, query = split_target(header(headers, ":path") or "")
        rest = tuple(field for field in headers if not field[0].startswith(":"))
        if authority is not None and header(rest, "host") is None:
            rest = (("host", authority), *rest)
        request = Request(method, path, query, rest, event.body, self.name)
        response = self.port.dispatch.answer(request)
        return self._respond(event.stream_id, response, head_only=method == "HEAD")

    def _respond(self, stream_id: int, response: Response, *, head_only: bool = False) -> int:
        body, rest = response.body, [("date", self.port.date)]
        if response.status in _BODILESS:
            body = b""
        else:
            rest.append(("content-length", str(len(body))))
        block = _start(response.status, response.headers) + encode_block(rest)
        self.connection.send_response(stream_id, block, b"" if head_only else body, None)
        return len(body)

    # -- what server streams ask ---------------------------------------------------------------------------------

    def wrote(self) -> None:
        """Something was sent: write it, unless it is part of a batch."""
        if not self._batching:
            self.write(self.connection.take_output())
            self._part()

    def forget(self, stream_id: int) -> None:
        """A server stream has ended."""
        self._streams.pop(stream_id, None)

    # -- time and back-pressure ----------------------------------------------------------------------------------

    def resumed(self) -> None:
        """Answer what waits, then offer the transport to the streams in turn, for as long as it takes more."""
        self._answer()
        for stream_id, stream in tuple(self._streams.items()):
            if self.paused:
                break
            if stream_id in self._streams:
                self._streams[stream_id] = self._streams.pop(stream_id)
                stream.offer()
        self._part()

    def check(self, now: float) -> None:
        """End slow requests and calls past their deadline; ask a silent peer for a sign of life; let an idle one go."""
        connection, limits = self.connection, self.port.limits
        connection.tick()
        self._batching = True
        for stream in tuple(self._streams.values()):
            if stream.deadline is not None and now >= stream.deadline:
                stream.end(Code.DEADLINE_EXCEEDED, "deadline exceeded")
        for stream_id, since in tuple(self._bodies.items()):
            if now - since > limits.body_seconds:
                del self._bodies[stream_id]
                connection.reset(stream_id, ErrorCode.CANCEL)
        self._batching = False
        self.active = now if connection.open_streams else self.active
        silent = now - self._heard
        if connection.header_block_open and now - self._block_since > limits.header_seconds:
            self._leave(ErrorCode.ENHANCE_YOUR_CALM)
        elif now - self.active > limits.idle_seconds:
            self._leave(ErrorCode.NO_ERROR)
        elif connection.open_streams and silent > limits.idle_seconds:
            self.transport.abort()
        elif silent > limits.idle_seconds / 2 and not connection.unanswered_pings:
            connection.ping()
        self.write(connection.take_output())
        self._part(now)

    # -- the end -------------------------------------------------------------------------------------------------

    def _leave(self, error: ErrorCode) -> None:
        self.connection.goaway(error)
        self.write(self.connection.take_output())
        self._lose()
        self.finish()

    def drain(self) -> None:
        """Ask for no more streams, and by a PING learn when the peer has read that."""
        self._left_at = self.clock()
        self.connection.goaway(last=False)
        self.connection.ping()
        self.write(self.connection.take_output())

    def _part(self, now: float | None = None) -> None:
        """Once the peer knows that we leave, say which stream was the last; once none is open, finish."""
        connection = self.connection
        if self.ended is not None or not connection.draining:
            return
        if self._left_at is not None and not self._parted:
            patient = now is None or now - self._left_at < QUIET_SECONDS
            if connection.unanswered_pings and patient:
                return
            self._parted = True
            connection.goaway()
            self.write(connection.take_output())
        if not connection.open_streams:
            self.finish()

    def cut(self) -> None:
        """End the streams that are still open, and the connection."""
        self._batching = True
        for stream in tuple(self._streams.values()):
            stream.end(Code.UNAVAILABLE, "shutting down")
        self._batching = False
        self.connection.goaway()
        self.write(self.connection.take_output())
        self.transport.close()
