"""Responses that last, whatever carries them: what their owners may rely on, and messages framed into the body of one."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from evaluator.http.routes import (
    ByteStream,
    Call,
    Code,
    Deferred,
    Headers,
    Response,
    RpcError,
    Streamed,
    too_late,
)
from evaluator.http.statuses import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from evaluator.http.routes import StreamHandler, UnaryHandler
    from evaluator.http.slices import Result

_log = logging.getLogger(__name__)


def failed(call: str) -> RpcError:
    """What the caller is told of an exception at hand, which is logged."""
    _log.exception("%s failed", call)
    return RpcError(Code.INTERNAL, "internal error")


def response_of(result: Result[Response]) -> Response:
    """A deferred response; 500 if making it failed where nobody answers for it, which is logged."""
    try:
        return result()
    except Exception:  # noqa: BLE001 - logged; what waits behind it is to be answered
        _log.exception("a deferred response failed")
        return refusal(500)


def _told(callback: Callable[[], None] | None) -> bool:
    """Call back an owner; False if it failed, which is logged."""
    try:
        if callback is not None:
            callback()
    except Exception:  # noqa: BLE001 - logged; one handler's failure is not the port's
        _log.exception("a stream's callback failed")
        return False
    return True


class OpenStream(ABC):
    """A response that lasts, as its connection sees it."""

    __slots__ = ("closed", "code", "deadline", "on_closed", "on_writable")

    def __init__(self, deadline: float | None) -> None:
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.closed = False
        self.code = Code.CANCELLED
        """What its owner did not choose to end it with."""
        self.deadline = deadline
        """When the caller stops waiting, on the loop's clock."""

    @property
    @abstractmethod
    def writable(self) -> bool:
        """True while open and nothing waits: neither for flow control nor for the transport."""

    @abstractmethod
    def finish(self, code: Code, message: str) -> None:
        """End it with a status, as far as its format has words for one."""

    @abstractmethod
    def leave(self) -> None:
        """It has ended: its connection need not keep it."""

    def end(self, code: Code, message: str) -> None:
        """End it on our own account: its owner is told."""
        if not self.closed:
            self.code = code
            self.finish(code, message)
            _told(self.on_closed)

    def lost(self) -> None:
        """The peer has ended it, or is gone."""
        if not self.closed:
            self.closed = True
            self.leave()
            _told(self.on_closed)

    def offer(self) -> None:
        """Tell the owner that it may send, if it may. An owner that fails loses the stream."""
        if self.writable and not _told(self.on_writable):
            self.end(Code.INTERNAL, "internal error")


class OpenBody(OpenStream):
    """A ByteStream, but for how its bytes go out."""

    __slots__ = ("_ending",)

    def __init__(self, ending: Callable[[Code, str], bytes] | None, deadline: float | None) -> None:
        super().__init__(deadline)
        self._ending = ending

    @abstractmethod
    def send(self, piece: bytes) -> None:
        """Send the next bytes. Raises RuntimeError while not `writable`."""

    @abstractmethod
    def close(self, last: bytes = b"") -> None:
        """End the body well, with `last` behind whatever waits; harmless if it has ended."""

    @abstractmethod
    def break_off(self) -> None:
        """End it so that the peer can tell it from one that ended well."""

    def finish(self, code: Code, message: str) -> None:
        """End it with words of its format; without any, an error breaks it off."""
        if self._ending is not None:
            self.close(self._ending(code, message))
        elif code is Code.INTERNAL:
            self.break_off()
        else:
            self.close()

    def begin(self, start: Callable[[ByteStream], None]) -> None:
        """Give it to its owner. An owner that fails loses it."""
        try:
            start(self)
        except Exception:  # noqa: BLE001 - failed logs it
            failure = failed("a streamed response")
            self.end(failure.code, failure.message)


@dataclass(frozen=True, slots=True)
class Framing:
    """How a protocol writes messages and a status into a body."""

    message: Callable[[bytes], bytes]
    ending: Callable[[Code, str], bytes]


class FramedStream:
    """A MessageStream on a ByteStream."""

    __slots__ = ("_body", "_framing")

    def __init__(self, body: ByteStream, framing: Framing) -> None:
        self._body = body
        self._framing = framing

    @property
    def on_writable(self) -> Callable[[], None] | None:
        """See MessageStream."""
        return self._body.on_writable

    @on_writable.setter
    def on_writable(self, callback: Callable[[], None] | None) -> None:
        self._body.on_writable = callback

    @property
    def on_closed(self) -> Callable[[], None] | None:
        """See MessageStream."""
        return self._body.on_closed

    @on_closed.setter
    def on_closed(self, callback: Callable[[], None] | None) -> None:
        self._body.on_closed = callback

    @property
    def code(self) -> Code:
        """See MessageStream."""
        return self._body.code

    @property
    def writable(self) -> bool:
        """True while open and nothing waits."""
        return self._body.writable

    @property
    def closed(self) -> bool:
        """True once ended by either side."""
        return self._body.closed

    def send(self, message: bytes) -> None:
        """Send one message. Raises RuntimeError while not `writable`."""
        self._body.send(self._framing.message(message))

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status, behind whatever waits; harmless if it has ended."""
        if not self._body.closed:
            self._body.close(self._framing.ending(code, message))


@dataclass(frozen=True, slots=True)
class UnaryFraming:
    """How a protocol writes the one message of a call into a response, or why there is none."""

    answered: Callable[[bytes], Response]
    refused: Callable[[RpcError], Response]


def call_unary(
    handler: UnaryHandler,
    call: Call,
    message: bytes,
    framing: UnaryFraming,
    left: float | None = None,
) -> Response | Deferred[Response]:
    """The handler's answer as a response, whatever becomes of the call. left: seconds that the caller still waits. Raises nothing."""
    if left is not None and left <= 0:
        return framing.refused(too_late())
    try:
        answer = handler(call, message)
    except RpcError as error:
        return framing.refused(error)
    except Exception:  # noqa: BLE001 - failed logs it
        return framing.refused(failed(call.path))
    if not isinstance(answer, Deferred):
        return framing.answered(answer)
    return Deferred(answer.through(partial(_later, call, framing)).steps, left)


def _later(
    call: Call, framing: UnaryFraming, steps: Generator[None, None, bytes]
) -> Generator[None, None, Response]:
    try:
        message = yield from steps
    except RpcError as error:
        return framing.refused(error)
    except Exception:  # noqa: BLE001 - failed logs it
        return framing.refused(failed(call.path))
    return framing.answered(message)


@dataclass(frozen=True, slots=True)
class CallStream:
    """One call of a stream handler whose messages go into a body."""

    handler: StreamHandler
    call: Call
    message: bytes
    framing: Framing

    def response(self, headers: Headers, seconds: float | None) -> Streamed:
        """The response that carries it."""
        return Streamed(200, headers, self._start, self.framing.ending, seconds)

    def _start(self, body: ByteStream) -> None:
        stream = FramedStream(body, self.framing)
        try:
            self.handler(self.call, self.message, stream)
        except RpcError as error:
            stream.close(error.code, error.message)
        except Exception:  # noqa: BLE001 - failed logs it
            failure = failed(self.call.path)
            stream.close(failure.code, failure.message)
