"""Handlers of RPCs that come as plain requests, each spoken to in one format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Call, Response, RpcError, Streamed, too_late
from evaluator.http.server.stream import call_error

if TYPE_CHECKING:
    from evaluator.http.deferred import Result
    from evaluator.http.messages import Framing, Headers, Request
    from evaluator.http.routes import StreamHandler, UnaryHandler


class Format(Protocol):
    """How calls of one protocol and codec are read from requests, and refused."""

    def read(self, request: Request) -> tuple[bytes, float | None]:
        """The message, and how many seconds the caller still waits; raises RpcError."""

    def refused(self, error: RpcError) -> Response:
        """The response to a call that failed, or is not made."""


class UnaryFormat(Format, Protocol):
    """One whose calls have one answer."""

    def answered(self, message: bytes) -> Response:
        """The response to a call that ended well."""


class StreamFormat(Format, Protocol):
    """One whose calls have many."""

    @property
    def headers(self) -> Headers:
        """Of the response."""

    @property
    def framing(self) -> Framing:
        """Of its messages."""


@dataclass(frozen=True, slots=True)
class Unary:
    """Calls of one unary handler."""

    handler: UnaryHandler
    format: UnaryFormat

    def answer(self, request: Request) -> Response | Deferred[Response]:
        """The response, or the error as one."""
        try:
            message, left = self.format.read(request)
        except RpcError as error:
            return self.format.refused(error)
        return self.call(request, message, left)

    def call(self, request: Request, message: bytes, left: float | None) -> Response | Deferred[Response]:
        """The same, for a message that was read. left: seconds that the caller still waits."""
        if left is not None and left <= 0:
            return self.format.refused(too_late())
        try:
            answer = self.handler(Call(request.path, request.headers, request.peer), message)
        except Exception as error:  # noqa: BLE001 - call_error logs it
            return self.format.refused(call_error(error, request.path))
        if isinstance(answer, Deferred):
            return replace(answer.then(partial(self._respond, request.path)), seconds=left)
        return self.format.answered(answer)

    def _respond(self, path: str, result: Result[bytes]) -> Response:
        try:
            return self.format.answered(result())
        except Exception as error:  # noqa: BLE001 - call_error logs it
            return self.format.refused(call_error(error, path))


@dataclass(frozen=True, slots=True)
class Stream:
    """Calls of one stream handler. The status is 200; an error is at the stream's end."""

    handler: StreamHandler
    format: StreamFormat

    def answer(self, request: Request) -> Response | Streamed:
        """The stream, or the end of one."""
        try:
            message, left = self.format.read(request)
        except RpcError as error:
            return self.format.refused(error)
        call = Call(request.path, request.headers, request.peer)
        start = partial(self.handler, call, message)
        return Streamed(200, self.format.headers, start, self.format.framing, left)
