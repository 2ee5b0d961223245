"""gRPC-Web: gRPC's messages in the body of a plain response, its trailers as the last frame of it; all in base64 if asked.

Source of the format: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.http.framing import (
    MESSAGE_CHARACTERS,
    frame,
    grpc_timeout,
    only_message,
    percent_encode,
)
from evaluator.http.routes import (
    Call,
    Code,
    Deferred,
    Headers,
    Request,
    Response,
    RpcError,
    Streamed,
    header,
)
from evaluator.http.streaming import CallStream, Framing, UnaryFraming, call_unary

if TYPE_CHECKING:
    from evaluator.http.routes import StreamHandler, UnaryHandler

_TRAILERS: Final = b"\x80"
_PADDED: Final = re.compile(rb"[^=]+=*|=+")
"""Base64 from one padding to the next: senders may pad wherever they flush."""
_MOST_PADDING: Final = 128


def trailer_frame(code: Code, message: str) -> bytes:
    """The frame that ends every response."""
    block = f"grpc-status: {int(code)}\r\n"
    if message:
        block += f"grpc-message: {percent_encode(message[:MESSAGE_CHARACTERS])}\r\n"
    return _TRAILERS + frame(block.encode())[1:]


def _text_frame(message: bytes) -> bytes:
    return b64encode(frame(message))


def _text_trailers(code: Code, message: str) -> bytes:
    return b64encode(trailer_frame(code, message))


BINARY: Final = Framing(frame, trailer_frame)
TEXT: Final = Framing(_text_frame, _text_trailers)
"""Each frame in base64 of its own, padded: clients take padding between frames."""


def read_message(request: Request, framing: Framing, limit: int) -> bytes:
    """The one message of a request. Raises RpcError as `framing.only_message` does."""
    body = request.body
    if framing is TEXT:
        if body.count(b"=") > _MOST_PADDING:
            raise RpcError(Code.INTERNAL, "the request is padded too often")
        try:
            body = b"".join(b64decode(each, validate=True) for each in _PADDED.findall(body))
        except ValueError as error:
            raise RpcError(Code.INTERNAL, "the request is not base64") from error
    return only_message(body, header(request.headers, "grpc-encoding"), limit)


@dataclass(frozen=True, slots=True)
class WebUnary:
    """Calls of one unary handler. The status is always 200: what went wrong stands in the trailers."""

    handler: UnaryHandler
    headers: Headers
    """Of the response."""
    framing: Framing
    limit: int

    def answer(self, request: Request) -> Response | Deferred[Response]:
        """Message and trailers, or trailers alone."""
        try:
            seconds = grpc_timeout(request.headers)
            message = read_message(request, self.framing, self.limit)
        except RpcError as error:
            return self.refuse(error)
        call = Call(request.path, request.headers, request.peer)
        framing = UnaryFraming(self._answered, self.refuse)
        left = None if seconds is None else seconds - request.waited
        return call_unary(self.handler, call, message, framing, left)

    def _answered(self, message: bytes) -> Response:
        body = self.framing.message(message) + self.framing.ending(Code.OK, "")
        return Response(200, body, self.headers)

    def refuse(self, error: RpcError) -> Response:
        """The response to a call that is not made."""
        return Response(200, self.framing.ending(error.code, error.message), self.headers)


@dataclass(frozen=True, slots=True)
class WebStream:
    """Calls of one stream handler."""

    handler: StreamHandler
    headers: Headers
    framing: Framing
    limit: int

    def answer(self, request: Request) -> Response | Streamed:
        """The stream, or trailers alone."""
        try:
            seconds = grpc_timeout(request.headers)
            message = read_message(request, self.framing, self.limit)
        except RpcError as error:
            return self.refuse(error)
        call = Call(request.path, request.headers, request.peer)
        stream = CallStream(self.handler, call, message, self.framing)
        left = None if seconds is None else seconds - request.waited
        return stream.response(self.headers, left)

    def refuse(self, error: RpcError) -> Response:
        """The response to a call that is not made."""
        return Response(200, self.framing.ending(error.code, error.message), self.headers)
