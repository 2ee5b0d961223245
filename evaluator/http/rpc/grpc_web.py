"""gRPC-Web: the body of a plain response has gRPC's messages and, in a last frame, its trailers; in base64 if
the client asks for it.

It is specified in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.http.messages import Code, Framing, Headers, Request, Response, RpcError, header
from evaluator.http.rpc.grpc_framing import (
    MESSAGE_CHARACTERS,
    envelope,
    frame,
    grpc_timeout,
    only_message,
    percent_encode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRAILERS: Final = b"\x80"
_PADDED: Final = re.compile(rb"[^=]+=*|=+")
"""A piece of base64 with its padding: senders may pad in the middle, wherever they flush."""
_MOST_PADDING: Final = 128


def trailer_frame(code: Code, message: str) -> bytes:
    """Return the frame that ends a response with a status."""
    block = f"grpc-status: {int(code)}\r\n"
    if message:
        block += f"grpc-message: {percent_encode(message[:MESSAGE_CHARACTERS])}\r\n"
    return _TRAILERS + frame(block.encode())[1:]


def _text_frame(message: bytes) -> Sequence[bytes]:
    return (b64encode(frame(message)),)


def _text_trailers(code: Code, message: str) -> bytes:
    return b64encode(trailer_frame(code, message))


BINARY: Final = Framing(envelope, trailer_frame)
TEXT: Final = Framing(_text_frame, _text_trailers)
"""Each frame is encoded and padded alone: clients accept padding between frames."""


def read_message(request: Request, framing: Framing, limit: int) -> bytes:
    """Return the only message of a request. Raises RpcError as `grpc.only_message` does."""
    body = request.body
    if framing is TEXT:
        if body.count(b"=") > _MOST_PADDING:
            raise RpcError(Code.INTERNAL, "the request is padded too often")
        try:
            body = b"".join(b64decode(piece, validate=True) for piece in _PADDED.findall(body))
        except ValueError as error:
            raise RpcError(Code.INTERNAL, "the request is not base64") from error
    return only_message(body, header(request.headers, "grpc-encoding"), limit)


@dataclass(frozen=True, slots=True)
class WebFormat:
    """Calls of gRPC-Web. The HTTP status is 200 always; the trailers have the status of the call."""

    headers: Headers
    framing: Framing
    limit: int

    def read(self, request: Request) -> tuple[bytes, float | None]:
        """See Format."""
        seconds = grpc_timeout(request.headers)
        message = read_message(request, self.framing, self.limit)
        return message, None if seconds is None else seconds - request.waited

    def answer(self, message: bytes) -> Response:
        """See Format."""
        body = b"".join((*self.framing.pieces(message), self._end(Code.OK, "")))
        return Response(200, body, self.headers)

    def refusal(self, error: RpcError) -> Response:
        """See Format."""
        return Response(200, self._end(error.code, error.message), self.headers)

    def _end(self, code: Code, message: str) -> bytes:
        return (_text_trailers if self.framing is TEXT else trailer_frame)(code, message)
