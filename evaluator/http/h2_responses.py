"""Passes requests of one HTTP/2 connection to handlers, and their responses back to the connection."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from evaluator.http.deferred import Deferred, Job, Result
from evaluator.http.dispatch import check_headers, response_of, split_target
from evaluator.http.grpc_framing import (
    GRPC,
    START,
    TRAILERS,
    ZIPPED_START,
    frame,
    only_message,
    takes_gzip,
    timeout_seconds,
    trailers,
    trailers_only,
)
from evaluator.http.h2_connection import Http2Connection
from evaluator.http.h2_frames import Http2ErrorCode, RequestReceived
from evaluator.http.hpack import (
    AUTHORITY,
    CONTENT_TYPE,
    ENCODING,
    LAST_PSEUDO,
    METHOD,
    PATH,
    TIMEOUT,
    Block,
    encode_block,
)
from evaluator.http.messages import (
    BODILESS,
    SIZED,
    Call,
    Code,
    Headers,
    Request,
    Response,
    RpcError,
    Streamed,
    deadline_exceeded,
    header,
    refusal,
)
from evaluator.http.peer import Peer, Port
from evaluator.http.stream import ServerStream, call_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.http.routes import StreamHandler, UnaryHandler


class ResponseOwner(Peer):
    """A connection as its responses see it."""

    __slots__ = ("connection",)

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self.connection = Http2Connection(port.limits)

    @abstractmethod
    def write_sent(self) -> None:
        """Write what was sent, unless it is part of a batch."""

    @abstractmethod
    def write_message(self) -> None:
        """Write a message of a stream that stays open, unless it is part of a batch."""

    @abstractmethod
    def forget(self, stream_id: int) -> None:
        """Remove a server stream that has ended."""


class Http2Body:
    """A plain response, which ends with its body."""

    __slots__ = ("_head", "_id", "_peer")

    def __init__(self, peer: ResponseOwner, stream_id: int, head: bytes) -> None:
        """Take the header block that goes before the body."""
        self._peer = peer
        self._id = stream_id
        self._head = head

    @property
    def writable(self) -> bool:
        """See StreamTransport."""
        return not self._peer.paused and self._peer.connection.writable(self._id)

    def start(self) -> None:
        """See StreamTransport."""
        if self._head:
            head, self._head = self._head, b""
            self._peer.connection.send_headers(self._id, head)
            self._peer.write_sent()

    def send(self, pieces: Sequence[bytes]) -> bool:
        """See StreamTransport."""
        peer = self._peer
        if peer.paused or not peer.connection.send_message(self._id, self._head, pieces):
            return False
        self._head = b""
        peer.write_message()
        return True

    def end(self, last: bytes) -> None:
        """See StreamTransport."""
        self.forget()
        self.start()
        self._peer.connection.send_body(self._id, last, end_stream=True)
        self._peer.write_sent()

    def break_off(self) -> None:
        """See StreamTransport."""
        self.forget()
        self._peer.connection.reset(self._id, Http2ErrorCode.INTERNAL_ERROR)
        self._peer.write_sent()

    def forget(self) -> None:
        """See StreamTransport."""
        self._peer.forget(self._id)


class CallTransport(Http2Body):
    """The response to a gRPC call: trailers end it; without a message, one header block is all."""

    __slots__ = ()

    def end(self, last: bytes) -> None:
        """Complete the response with `last`, the header block of its trailers."""
        self.forget()
        if self._head:
            self._peer.connection.send_headers(self._id, self._head + last, end_stream=True)
        else:
            self._peer.connection.send_trailers(self._id, last)
        self._peer.write_sent()


log = logging.getLogger(__name__)

_GRPC: Final = "application/grpc"
_GRPC_TYPES: Final = frozenset({_GRPC, "application/grpc+proto"})
_TOO_LARGE: Final = RpcError(Code.RESOURCE_EXHAUSTED, "request too large")


@lru_cache(maxsize=256)
def _start(status: int, headers: Headers, more: Headers, date: str) -> bytes:
    """Return a response's headers without content-length. Raises ValueError for forbidden headers."""
    check_headers((*headers, *more))
    return encode_block(((":status", str(status)), *headers, *more, ("date", date)))


def _is_grpc(block: Block) -> bool:
    """Return whether the content-type is one of gRPC, but not of gRPC-Web."""
    content_type = block.values[CONTENT_TYPE] or ""
    return content_type.startswith(_GRPC) and not content_type.startswith("application/grpc-web")


def _seconds_left(block: Block, waited: float) -> float | None:
    """Return the seconds until the caller's deadline, or None. Raises RpcError for a malformed timeout."""
    timeout = block.values[TIMEOUT]
    return None if timeout is None else timeout_seconds(timeout) - waited


def _request(block: Block, body: bytes, peer: str, waited: float = 0.0) -> Request:
    """Return a plain request, without pseudo-headers but with `:authority` as `host`."""
    values = block.values
    authority = values[AUTHORITY]
    path, query = split_target(values[PATH] or "")
    pseudo = sum(value is not None for value in values[METHOD : LAST_PSEUDO + 1])
    headers = block.fields[pseudo:]
    if authority is not None and header(headers, "host") is None:
        headers = (("host", authority), *headers)
    request = Request(values[METHOD] or "", path, query, headers, body, peer)
    request.waited = waited
    return request


class Responses:
    """The responses of one connection: complete ones, deferred ones and streams."""

    __slots__ = ("_peer", "making", "streams")

    def __init__(self, peer: ResponseOwner) -> None:
        self._peer = peer
        self.streams: dict[int, ServerStream] = {}
        """Open streams by id; the last one was the last to be offered the transport."""
        self.making: dict[int, Job[Any]] = {}
        """Deferred responses in progress."""

    def end_stream(self, stream_id: int) -> None:
        """End everything on a stream on which nothing more can be sent."""
        if stream_id in self.streams:
            self.streams[stream_id].abort()
        elif stream_id in self.making:
            self.making.pop(stream_id).cancel()

    def lose(self) -> None:
        """End everything on a lost connection."""
        for job in self.making.values():
            job.cancel()
        self.making.clear()
        for stream in tuple(self.streams.values()):
            stream.abort()

    def serve(self, event: RequestReceived, waited: float) -> int:
        """Answer a request that has waited some seconds; return about how many bytes the answer has."""
        values, routes = event.block.values, self._peer.port.routes
        path, content_type = values[PATH] or "", values[CONTENT_TYPE] or ""
        if content_type not in _GRPC_TYPES:
            if not _is_grpc(event.block):
                return self._plain(event, waited)
            if content_type.partition(";")[0].rstrip() not in _GRPC_TYPES:
                return self._respond(event.stream_id, refusal(415))
        if values[METHOD] != "POST":
            return self._respond(event.stream_id, refusal(405, (("allow", "POST"),)))
        unary = routes.unary.get(path)
        if unary is not None:
            return self._unary(event, unary, path, waited)
        self._open(event, routes.streams.get(path), path, waited)
        return 0

    def _unary(self, event: RequestReceived, handler: UnaryHandler, path: str, waited: float) -> int:
        block = event.block
        try:
            left = _seconds_left(block, waited)
            if left is not None and left <= 0:
                return self._fail(event.stream_id, path, deadline_exceeded())
            message = only_message(event.body, block.values[ENCODING], self._peer.port.limits.body_bytes)
            answer = handler(Call(path, block.fields, self._peer.name, self._peer.client), message)
        except Exception as error:  # noqa: BLE001 - _fail logs it
            return self._fail(event.stream_id, path, error)
        if isinstance(answer, bytes):
            return self._send(event.stream_id, answer)
        timed = replace(answer, seconds=left)
        self._respond_later(event.stream_id, timed, partial(self._send_result, path))
        return 0

    def _send_result(self, path: str, stream_id: int, result: Result[bytes]) -> int:
        try:
            answer = result()
        except Exception as error:  # noqa: BLE001 - _fail logs it
            return self._fail(stream_id, path, error)
        return self._send(stream_id, answer)

    def _send(self, stream_id: int, message: bytes) -> int:
        self._peer.connection.send_response(stream_id, START, frame(message), TRAILERS)
        return len(message)

    def _fail(self, stream_id: int, path: str, error: Exception) -> int:
        """End a unary call with a status, behind response headers: clients with a retry policy repeat calls
        that end without any, and the answer would be the same again.
        """
        refused = call_error(error, path)
        self._peer.connection.send_response(stream_id, START, b"", trailers(refused.code, refused.message))
        return 0

    def _respond_later(
        self, stream_id: int, answer: Deferred[Any], respond: Callable[[int, Result[Any]], int]
    ) -> None:
        """Make an answer in steps, `respond` to it, then answer requests that have waited for it."""

        def send_result(result: Result[Any]) -> None:
            del self.making[stream_id]
            respond(stream_id, result)
            self._peer.answer_waiting()

        self.making[stream_id] = self._peer.defer(answer, send_result)

    def _open(self, event: RequestReceived, handler: StreamHandler | None, path: str, waited: float) -> None:
        """Begin a server stream. If it is refused, only trailers are sent, so that clients may retry."""
        if handler is None:
            self._refuse_method(event.stream_id, path)
            return
        block, limit = event.block, self._peer.port.limits.body_bytes
        gzip = takes_gzip(block.fields)
        start = ZIPPED_START if gzip else START
        stream = ServerStream(CallTransport(self._peer, event.stream_id, start), GRPC)
        stream.gzip = gzip
        try:
            left = _seconds_left(block, waited)
            message = only_message(event.body, block.values[ENCODING], limit)
        except RpcError as error:
            stream.close(error.code, error.message)
            return
        stream.deadline = None if left is None else self._peer.clock() + left
        self.streams[event.stream_id] = stream
        stream.begin(
            partial(handler, Call(path, block.fields, self._peer.name, self._peer.client), message), path
        )

    def _plain(self, event: RequestReceived, waited: float) -> int:
        request = _request(event.block, event.body, self._peer.name, waited)
        (answer, more), head_only = self._peer.port.dispatch.answer(request), request.method == "HEAD"
        if isinstance(answer, Response):
            return self._respond(event.stream_id, answer, more, head_only=head_only)
        if isinstance(answer, Deferred):
            self._respond_later(
                event.stream_id,
                answer,
                lambda at, result: self._respond(at, response_of(result), more, head_only=head_only),
            )
            return 0
        self._begin(event.stream_id, answer, more, head_only=head_only)
        return 0

    def _begin(self, stream_id: int, answer: Streamed, more: Headers, *, head_only: bool) -> None:
        block = _start(answer.status, answer.headers, more, self._peer.port.date)
        if head_only:
            self._peer.connection.send_headers(stream_id, block, end_stream=True)
            return
        until = None if answer.seconds is None else self._peer.clock() + answer.seconds
        sized = header(answer.headers, "content-length") is not None
        transport = Http2Body(self._peer, stream_id, block)
        stream = ServerStream(transport, SIZED if sized else answer.framing, until)
        self.streams[stream_id] = stream
        stream.begin(answer.start, "a streamed response")

    def refuse_unknown(self, stream_id: int) -> bool:
        """Answer a request for an unknown path before its body; return False if the path is known."""
        connection, port = self._peer.connection, self._peer.port
        block = connection.block(stream_id)
        path = block.values[PATH] or ""
        if _is_grpc(block):
            known = path in port.routes.unary or path in port.routes.streams
        else:
            known = port.dispatch.knows(split_target(path)[0])
        if known:
            return False
        connection.discard_body(stream_id)
        if _is_grpc(block):
            self._refuse_method(stream_id, path)
        else:
            self._respond(stream_id, port.dispatch.unknown(_request(block, b"", self._peer.name).headers))
        return True

    def _refuse_method(self, stream_id: int, path: str) -> None:
        stream = ServerStream(CallTransport(self._peer, stream_id, START), GRPC)
        stream.close(Code.UNIMPLEMENTED, f"unknown method {path}")

    def refuse_body(self, stream_id: int, block: Block) -> None:
        """Answer a request whose body is over the limit."""
        path = block.values[PATH] or ""
        if not _is_grpc(block):
            request = _request(block, b"", self._peer.name)
            self._respond(stream_id, self._peer.port.dispatch.too_large(request.path, request.headers))
        elif path in self._peer.port.routes.unary:
            self._fail(stream_id, path, _TOO_LARGE)
        else:
            refused = trailers_only(_TOO_LARGE.code, _TOO_LARGE.message)
            self._peer.connection.send_headers(stream_id, refused, end_stream=True)

    def _respond(
        self, stream_id: int, response: Response, more: Headers = (), *, head_only: bool = False
    ) -> int:
        status, body, headers = response
        try:
            block = _start(status, headers, more, self._peer.port.date)
        except ValueError:
            log.exception("a response cannot be sent")
            return self._respond(stream_id, refusal(500), more, head_only=head_only)
        if status in BODILESS:
            body = b""
        else:
            block += encode_block([("content-length", str(len(body)))])
        self._peer.connection.send_response(stream_id, block, b"" if head_only else body, None)
        return len(body)
