"""A response that lasts, on HTTP/1: as long as its head says, or in chunks (RFC 9112 section 7.1), or until the connection ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from evaluator.http.streaming import OpenBody

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.routes import Code

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


class ChunkedBody(OpenBody):
    """A ByteStream on the one response that its connection is sending."""

    __slots__ = ("_chunked", "_head", "_peer", "_sized")

    def __init__(
        self,
        peer: Carrier,
        head: bytes,
        ending: Callable[[Code, str], bytes] | None,
        deadline: float | None,
        *,
        chunked: bool,
        sized: bool = False,
    ) -> None:
        """`sized`: the head tells the length; else, without chunks, the connection's end is the body's."""
        super().__init__(ending, deadline)
        self._peer = peer
        self._head = head
        """Goes out with the first piece, or by itself if that does not come at once."""
        self._chunked = chunked
        self._sized = sized

    @property
    def writable(self) -> bool:
        """True while open and the transport takes more."""
        return not (self.closed or self._peer.paused)

    def flush(self) -> None:
        """Send the head, unless it was."""
        if self._head and not self.closed:
            self._write(b"")

    def send(self, piece: bytes) -> None:
        """Send the next bytes. Raises RuntimeError while not `writable`."""
        if not self.writable:
            raise RuntimeError("sent on a body that is closed or not writable")
        # A chunk of nothing would be the last.
        if piece:
            self._write(self._framed(piece))

    def close(self, last: bytes = b"") -> None:
        """End the body well, with `last` behind whatever waits; harmless if it has ended."""
        if not self.closed:
            self.closed = True
            self._write((self._framed(last) if last else b"") + (_LAST if self._chunked else b""))
            self.leave()

    def finish(self, code: Code, message: str) -> None:
        """What would follow a body that is shorter than was said counted as the rest of it."""
        if self._sized:
            self.break_off()
        else:
            super().finish(code, message)

    def break_off(self) -> None:
        """Without the last chunk, or its whole length, the body counts as cut short."""
        if not self.closed:
            self.closed = True
            self._peer.break_off()

    def leave(self) -> None:
        """The connection goes on to the next response."""
        self._peer.body_ended()

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    def _write(self, output: bytes) -> None:
        head, self._head = self._head, b""
        self._peer.write(head + output)
