"""How a response that lasts goes out on HTTP/1: as long as its head says, or in chunks (RFC 9112 section
7.1), or until the connection ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST = b"0\r\n\r\n"


class Carrier(Protocol):
    """What a body asks of its connection."""

    paused: bool

    def write(self, output: bytes) -> None:
        """Give `output` to the transport."""

    def body_ended(self) -> None:
        """The body is all written, or will never be: the next response may follow."""

    def break_off(self) -> None:
        """End the connection as it stands."""


class BodyTransport:
    """The one response that its connection is sending."""

    __slots__ = ("_chunked", "_head", "_peer")

    def __init__(self, peer: Carrier, head: bytes, *, chunked: bool) -> None:
        """Without chunks the head gives the length, or the connection's end is the body's."""
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

    def send(self, pieces: Sequence[bytes]) -> None:
        """See StreamTransport."""
        # A chunk of nothing would be the last.
        if piece := b"".join(pieces):
            self._write(self._framed(piece))

    def end(self, last: bytes) -> None:
        """See StreamTransport."""
        self._write((self._framed(last) if last else b"") + (_LAST if self._chunked else b""))
        self._peer.body_ended()

    def break_off(self) -> None:
        """Without the last chunk, or its whole length, the body counts as cut short."""
        self._peer.break_off()

    def forget(self) -> None:
        """See StreamTransport."""
        self._peer.body_ended()

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    def _write(self, output: bytes) -> None:
        head, self._head = self._head, b""
        self._peer.write(head + output)
