"""Sends a response body piece by piece on an HTTP/1.1 connection."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from evaluator.http.server.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class BodyTransport:
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
