"""A response that lasts, whatever carries it and in whatever format: the one type that handlers are given."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from evaluator.http.messages import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.http.messages import Framing

log = logging.getLogger(__name__)


def call_error(error: Exception, call: str) -> RpcError:
    """The status that a call ends with for an exception, which is logged if it is none itself."""
    if isinstance(error, RpcError):
        return error
    log.error("%s failed", call, exc_info=error)
    return RpcError(Code.INTERNAL, "internal error")


def _notified(callback: Callable[[], None] | None) -> bool:
    """Call back an owner; False if it failed, which is logged."""
    try:
        if callback is not None:
            callback()
    except Exception:
        log.exception("a stream's callback failed")
        return False
    return True


class StreamTransport(Protocol):
    """How one response goes out, on a connection of either HTTP version."""

    @property
    def writable(self) -> bool:
        """True while nothing waits: neither for flow control nor for the connection."""

    def start(self) -> None:
        """Send the response headers, unless they were."""

    def send(self, pieces: Sequence[bytes]) -> None:
        """Send bytes of the body, the headers before them."""

    def end(self, last: bytes) -> None:
        """End the response well, with `last` behind whatever waits."""

    def break_off(self) -> None:
        """End the response so that the peer can distinguish it from one that ended well."""

    def forget(self) -> None:
        """The peer is gone, or has ended the stream."""


class ServerStream:
    """A MessageStream and ByteStream: `framing` writes into what `transport` carries."""

    __slots__ = ("_framing", "_transport", "closed", "deadline", "on_closed", "on_ended", "on_writable")

    def __init__(self, transport: StreamTransport, framing: Framing, deadline: float | None = None) -> None:
        self._transport = transport
        self._framing = framing
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.on_ended: Callable[[Code], None] | None = None
        self.closed = False
        self.deadline = deadline
        """When the caller stops waiting, on the loop's clock."""

    @property
    def writable(self) -> bool:
        """True while open and nothing waits: neither for flow control nor for the connection."""
        return not self.closed and self._transport.writable

    def begin(self, start: Callable[[ServerStream], None], name: str) -> None:
        """Give it to its owner, then send the headers; if the owner fails, end it. `name` is for the log."""
        try:
            start(self)
        except Exception as error:  # noqa: BLE001 - call_error logs it
            failure = call_error(error, name)
            self.close(failure.code, failure.message)
        if not self.closed:
            self._transport.start()

    def send(self, message: bytes) -> None:
        """Send one message. Raises RuntimeError while not `writable`."""
        if not self.writable:
            raise RuntimeError("sent on a stream that is closed or not writable")
        self._transport.send(self._framing.pieces(message))

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End it with a status, if its format has one, behind whatever waits; harmless if it has ended."""
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
        """End it well, with the message `last` behind whatever waits; harmless if it has ended."""
        if not self.closed:
            self.closed = True
            self._transport.end(b"".join(self._framing.pieces(last)) if last else b"")

    def break_off(self) -> None:
        """End it so that the peer can distinguish it from one that ended well; harmless if it has ended."""
        if not self.closed:
            self.closed = True
            self._transport.break_off()

    def end(self, code: Code, message: str) -> None:
        """End it for a reason of the connection's, and notify its owner."""
        if not self.closed:
            self.close(code, message)
            _notified(self.on_closed)

    def lost(self) -> None:
        """The peer has ended it, or is gone."""
        if not self.closed:
            self.closed = True
            self._report(Code.CANCELLED)
            self._transport.forget()
            _notified(self.on_closed)

    def _report(self, code: Code) -> None:
        if self.on_ended is not None:
            _notified(partial(self.on_ended, code))

    def offer(self) -> None:
        """Notify the owner that it may send, if it may. An owner that fails loses the stream."""
        if self.writable and not _notified(self.on_writable):
            self.end(Code.INTERNAL, "internal error")
