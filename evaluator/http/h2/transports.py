"""Sends responses that are streams on an HTTP/2 connection."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from evaluator.http.h2.connection import Connection
from evaluator.http.h2.frames import ErrorCode
from evaluator.http.server.peer import Peer, Port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ResponseOwner(Peer):
    """A connection as its responses see it."""

    __slots__ = ("connection",)

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self.connection = Connection(port.limits)

    @abstractmethod
    def write_sent(self) -> None:
        """Write what was sent, unless it is part of a batch."""

    @abstractmethod
    def write_message(self) -> None:
        """Write a message of a stream that stays open, unless it is part of a batch."""

    @abstractmethod
    def forget(self, stream_id: int) -> None:
        """Remove a server stream that has ended."""


class BodyTransport:
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
        self._peer.connection.reset(self._id, ErrorCode.INTERNAL_ERROR)
        self._peer.write_sent()

    def forget(self) -> None:
        """See StreamTransport."""
        self._peer.forget(self._id)


class CallTransport(BodyTransport):
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
