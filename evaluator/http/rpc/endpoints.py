"""Adapts RPC handlers to plain requests: an endpoint is a handler with one format of calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from evaluator.http.deferred import Deferred
from evaluator.http.messages import Call, Response, RpcError, Streamed, deadline_exceeded
from evaluator.http.server.stream import call_error

if TYPE_CHECKING:
    from evaluator.http.deferred import Result
    from evaluator.http.messages import Framing, Headers, Request
    from evaluator.http.routes import StreamHandler, UnaryHandler


class Format(Protocol):
    """Reads calls of one protocol and codec from requests, and encodes errors."""

    def read(self, request: Request) -> tuple[bytes, float | None]:
        """Return the message, and the seconds left until the caller's deadline. Raises RpcError."""

    def refusal(self, error: RpcError) -> Response:
        """Return the response to a call that ended with an error."""


class UnaryFormat(Format, Protocol):
    """The format of a call with one answer."""

    def answer(self, message: bytes) -> Response:
        """Return the response with the answer's message."""


class StreamFormat(Format, Protocol):
    """The format of a call that a stream answers."""

    @property
    def headers(self) -> Headers:
        """Return the headers of the response."""

    @property
    def framing(self) -> Framing:
        """Return the framing of the messages in its body."""


@dataclass(frozen=True, slots=True)
class Unary:
    """Answers calls of one unary handler in one format."""

    handler: UnaryHandler
    format: UnaryFormat

    def answer(self, request: Request) -> Response | Deferred[Response]:
        """Read a call from the request and answer it."""
        try:
            message, left = self.format.read(request)
        except RpcError as error:
            return self.format.refusal(error)
        return self.call(request, message, left)

    def call(self, request: Request, message: bytes, left: float | None) -> Response | Deferred[Response]:
        """Answer a call with this message, and `left` seconds until the caller's deadline."""
        if left is not None and left <= 0:
            return self.format.refusal(deadline_exceeded())
        try:
            answer = self.handler(Call(request.path, request.headers, request.peer), message)
        except Exception as error:  # noqa: BLE001 - call_error logs it
            return self.format.refusal(call_error(error, request.path))
        if isinstance(answer, Deferred):
            return replace(answer.then(partial(self._respond, request.path)), seconds=left)
        return self.format.answer(answer)

    def _respond(self, path: str, result: Result[bytes]) -> Response:
        try:
            return self.format.answer(result())
        except Exception as error:  # noqa: BLE001 - call_error logs it
            return self.format.refusal(call_error(error, path))


@dataclass(frozen=True, slots=True)
class Stream:
    """Answers calls of one stream handler in one format, always with 200; an error ends the stream."""

    handler: StreamHandler
    format: StreamFormat

    def answer(self, request: Request) -> Response | Streamed:
        """Read a call from the request and answer it with a stream, or with an error."""
        try:
            message, left = self.format.read(request)
        except RpcError as error:
            return self.format.refusal(error)
        call = Call(request.path, request.headers, request.peer)
        start = partial(self.handler, call, message)
        return Streamed(200, self.format.headers, start, self.format.framing, left)
