"""The stream that handlers are given, over either HTTP version and in every format."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from evaluator.http.messages import Code, Framing, RpcError, Zipped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


log = logging.getLogger(__name__)


def call_error(error: Exception, call: str) -> RpcError:
    """Return an RpcError as it is; log another exception with the name `call`, and return INTERNAL."""
    if isinstance(error, RpcError):
        return error
    log.error("%s failed", call, exc_info=error)
    return RpcError(Code.INTERNAL, "internal error")


def _notify(callback: Callable[[], None] | None) -> bool:
    """Call a handler's callback; return False if it failed, which is logged."""
    try:
        if callback is not None:
            callback()
    except Exception:
        log.exception("a stream's callback failed")
        return False
    return True


class StreamTransport(Protocol):
    """Sends one response on a connection of either HTTP version."""

    @property
    def writable(self) -> bool:
        """Return whether nothing is buffered, neither for flow control nor for the connection."""

    def start(self) -> None:
        """Send the response headers if they were not sent."""

    def send(self, pieces: Sequence[bytes]) -> bool:
        """Send a part of the body, first the headers if they were not sent; return False, and send nothing,
        while not `writable`.
        """

    def end(self, last: bytes) -> None:
        """Complete the response, with `last` behind the buffered bytes."""

    def break_off(self) -> None:
        """End the response so that the client sees that it is incomplete."""

    def forget(self) -> None:
        """Drop what is buffered: the client has disconnected or ended the stream."""


class ServerStream:
    """A MessageStream and ByteStream: `framing` encodes its messages, `transport` sends them."""

    __slots__ = (
        "_framing", "_transport", "closed", "deadline", "gzip", "on_closed", "on_ended", "on_writable",
    )  # fmt: skip

    def __init__(self, transport: StreamTransport, framing: Framing, deadline: float | None = None) -> None:
        self._transport = transport
        self._framing = framing
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.on_ended: Callable[[Code], None] | None = None
        self.closed = False
        self.deadline = deadline
        """The caller's deadline, by the event loop's clock."""
        self.gzip = False

    @property
    def writable(self) -> bool:
        """Return whether the stream is open and nothing is buffered."""
        return not self.closed and self._transport.writable

    def begin(self, start: Callable[[ServerStream], None], name: str) -> None:
        """Pass the stream to its handler, then send the headers; if the handler fails, end the stream with
        the error, which is logged with `name`.
        """
        try:
            start(self)
        except Exception as error:  # noqa: BLE001 - call_error logs it
            failure = call_error(error, name)
            self.close(failure.code, failure.message)
        if not self.closed:
            self._transport.start()

    def send(self, message: bytes | Zipped) -> bool:
        """Send one message; return False, and send nothing, while not `writable`."""
        pieces = message.pieces if isinstance(message, Zipped) else self._framing.pieces(message)
        return not self.closed and self._transport.send(pieces)

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status, if its format can carry one; do nothing if it has ended."""
        if self.closed:
            return
        self._report(code)
        framing = self._framing
        if framing.ending is not None:
            self.closed = True
            self._transport.end(framing.ending(code, message))
        elif code is Code.INTERNAL or (framing.sized and code is not Code.OK):
            self.break_off()
        else:
            self.finish()

    def finish(self, last: bytes = b"") -> None:
        """Complete the body, with the message `last` behind the buffered ones; do nothing if it has ended."""
        if not self.closed:
            self.closed = True
            self._transport.end(b"".join(self._framing.pieces(last)) if last else b"")

    def break_off(self) -> None:
        """End the body so that the client sees that it is incomplete; do nothing if it has ended."""
        if not self.closed:
            self.closed = True
            self._transport.break_off()

    def end(self, code: Code, message: str) -> None:
        """End the stream because of its connection, and notify the handler."""
        if not self.closed:
            self.close(code, message)
            _notify(self.on_closed)

    def abort(self) -> None:
        """End the stream because the client has ended it or disconnected, and notify the handler."""
        if not self.closed:
            self.closed = True
            self._report(Code.CANCELLED)
            self._transport.forget()
            _notify(self.on_closed)

    def _report(self, code: Code) -> None:
        if self.on_ended is not None:
            _notify(partial(self.on_ended, code))

    def notify_writable(self) -> None:
        """Notify the handler if it may send. If the callback fails, the stream ends with INTERNAL."""
        if self.writable and not _notify(self.on_writable):
            self.end(Code.INTERNAL, "internal error")
