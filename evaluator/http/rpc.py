"""gRPC calls on HTTP/2 streams: which handler a request is for, and the server stream that a handler is given."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from evaluator.http.dispatch import refusal
from evaluator.http.framing import START, frame, timeout_seconds, trailers, trailers_only
from evaluator.http.routes import (
    Call,
    Code,
    Headers,
    Response,
    Routes,
    StreamHandler,
    UnaryHandler,
    header,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.http2 import Http2Peer

_log = logging.getLogger(__name__)
_CONTENT_TYPES = frozenset({"application/grpc", "application/grpc+proto"})


@dataclass(frozen=True, slots=True)
class Unary:
    """A request for a unary handler."""

    call: Call
    handler: UnaryHandler
    encoding: str | None
    """The request's `grpc-encoding`."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """A request for a stream handler."""

    call: Call
    handler: StreamHandler
    encoding: str | None


Rpc: TypeAlias = Unary | Streaming | Response | bytes


def is_grpc(headers: Headers) -> bool:
    """Whether the content-type says gRPC, of whatever kind."""
    return (header(headers, "content-type") or "").startswith("application/grpc")


def choose(routes: Routes, headers: Headers, peer: str) -> Rpc | None:
    """What a request with `headers` is for.

    A Response or a header block (trailers only) refuses it as it stands; None says that it is plain HTTP.
    """
    content_type = header(headers, "content-type") or ""
    if not content_type.startswith("application/grpc"):
        return None
    if content_type.partition(";")[0].rstrip() not in _CONTENT_TYPES:
        return refusal(415)
    if header(headers, ":method") != "POST":
        return refusal(405, (("allow", "POST"),))
    path = header(headers, ":path") or ""
    call, encoding = Call(path, headers, peer), header(headers, "grpc-encoding")
    unary, stream = routes.unary.get(path), routes.streams.get(path)
    if unary is not None:
        return Unary(call, unary, encoding)
    if stream is not None:
        return Streaming(call, stream, encoding)
    return trailers_only(Code.UNIMPLEMENTED, f"unknown method {path}")


def told(callback: Callable[[], None] | None) -> bool:
    """Call back an owner; False if it failed, which is logged."""
    try:
        if callback is not None:
            callback()
    except Exception:  # noqa: BLE001 - logged; one handler's failure is not the port's
        _log.exception("a stream's callback failed")
        return False
    return True


class ServerStream:
    """A MessageStream on one HTTP/2 stream."""

    __slots__ = ("_id", "_peer", "_started", "closed", "deadline", "on_closed", "on_writable")

    def __init__(self, peer: Http2Peer, stream_id: int, deadline: float | None) -> None:
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.closed = False
        self.deadline = deadline
        """On the loop's clock."""
        self._peer = peer
        self._id = stream_id
        self._started = False

    @property
    def writable(self) -> bool:
        """True while open and nothing waits: neither for flow control nor for the transport."""
        peer = self._peer
        return not (self.closed or peer.paused) and peer.connection.writable(self._id)

    def start(self) -> None:
        """Send the response headers, unless they were."""
        if not self._started and not self.closed:
            self._started = True
            self._peer.connection.send_headers(self._id, START)
            self._peer.wrote()

    def send(self, message: bytes) -> None:
        """Send one message. Raises RuntimeError while not `writable`."""
        if not self.writable:
            raise RuntimeError("sent on a stream that is closed or not writable")
        if not self._started:
            self._started = True
            self._peer.connection.send_headers(self._id, START)
        self._peer.connection.send_body(self._id, frame(message))
        self._peer.wrote()

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status, behind whatever waits; harmless if it has ended."""
        if self.closed:
            return
        self.closed = True
        self._peer.forget(self._id)
        if self._started:
            self._peer.connection.send_trailers(self._id, trailers(code, message))
        else:
            block = trailers_only(code, message)
            self._peer.connection.send_headers(self._id, block, end_stream=True)
        self._peer.wrote()

    def end(self, code: Code, message: str) -> None:
        """End it on our own account: its owner is told."""
        if not self.closed:
            self.close(code, message)
            told(self.on_closed)

    def lost(self) -> None:
        """The peer has ended it, or is gone."""
        if not self.closed:
            self.closed = True
            self._peer.forget(self._id)
            told(self.on_closed)

    def offer(self) -> None:
        """Tell the owner that it may send, if it may. An owner that fails loses the stream."""
        if self.writable and not told(self.on_writable):
            self.end(Code.INTERNAL, "internal error")


def deadline(headers: Headers, now: float) -> float | None:
    """When the caller stops waiting, on the clock of `now`. Raises RpcError for a malformed `grpc-timeout`."""
    timeout = header(headers, "grpc-timeout")
    return None if timeout is None else now + timeout_seconds(timeout)
