"""Responses that last, on streams of an HTTP/2 connection: gRPC's server streams and plain bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from evaluator.http.frames import ErrorCode
from evaluator.http.framing import START, frame, prefix, trailers, trailers_only
from evaluator.http.routes import Code
from evaluator.http.streaming import OpenBody, OpenStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.connection import Connection

SHARED: Final = 8_192
"""Bytes from which on a message is worth a frame of its own for its prefix."""


class Carrier(Protocol):
    """What the streams ask of their connection."""

    connection: Connection
    paused: bool

    def wrote(self) -> None:
        """Something is in the output of `connection`."""

    def forget(self, stream_id: int) -> None:
        """The stream has ended."""


class ServerStream(OpenStream):
    """A MessageStream of gRPC."""

    __slots__ = ("_id", "_peer", "_started")

    def __init__(self, peer: Carrier, stream_id: int) -> None:
        super().__init__(None)
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
        if len(message) > SHARED:
            # Behind its prefix, not joined to it: what waits for slow peers is one copy for all of them.
            self._peer.connection.send_body(self._id, prefix(message))
            self._peer.connection.send_body(self._id, message)
        else:
            self._peer.connection.send_body(self._id, frame(message))
        self._peer.wrote()

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status, behind whatever waits; harmless if it has ended."""
        if self.closed:
            return
        self.closed = True
        self.leave()
        if self._started:
            self._peer.connection.send_trailers(self._id, trailers(code, message))
        else:
            block = trailers_only(code, message)
            self._peer.connection.send_headers(self._id, block, end_stream=True)
        self._peer.wrote()

    def finish(self, code: Code, message: str) -> None:
        """Trailers have words for any status."""
        self.close(code, message)

    def leave(self) -> None:
        """The connection forgets it."""
        self._peer.forget(self._id)


class DataBody(OpenBody):
    """A ByteStream whose headers are sent."""

    __slots__ = ("_id", "_peer")

    def __init__(
        self,
        peer: Carrier,
        stream_id: int,
        ending: Callable[[Code, str], bytes] | None,
        deadline: float | None,
    ) -> None:
        super().__init__(ending, deadline)
        self._peer = peer
        self._id = stream_id

    @property
    def writable(self) -> bool:
        """True while open and nothing waits: neither for flow control nor for the transport."""
        peer = self._peer
        return not (self.closed or peer.paused) and peer.connection.writable(self._id)

    def send(self, piece: bytes) -> None:
        """Send the next bytes. Raises RuntimeError while not `writable`."""
        if not self.writable:
            raise RuntimeError("sent on a body that is closed or not writable")
        self._peer.connection.send_body(self._id, piece)
        self._peer.wrote()

    def close(self, last: bytes = b"") -> None:
        """End the body well, with `last` behind whatever waits; harmless if it has ended."""
        if not self.closed:
            self.closed = True
            self.leave()
            self._peer.connection.send_body(self._id, last, end_stream=True)
            self._peer.wrote()

    def break_off(self) -> None:
        """RST_STREAM."""
        if not self.closed:
            self.closed = True
            self.leave()
            self._peer.connection.reset(self._id, ErrorCode.INTERNAL_ERROR)
            self._peer.wrote()

    def leave(self) -> None:
        """The connection forgets it."""
        self._peer.forget(self._id)
