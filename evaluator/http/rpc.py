"""RPCs of gRPC-Web and Connect, which are plain requests over either HTTP version: the path names the
handler, the content-type the protocol.

Connect has unary calls as ordinary POST and GET, server streams in envelopes, errors in JSON.

It is specified in https://connectrpc.com/docs/protocol.

In gRPC-Web the body of a plain response has gRPC's messages and, in a last frame, its trailers; in base64 if
the client asks for it.

It is specified in https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md.

gRPC itself needs HTTP/2's trailers, and `h2_responses` answers it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl

from evaluator.http.deferred import Deferred, Result
from evaluator.http.grpc_framing import (
    MESSAGE_CHARACTERS,
    envelope,
    expand,
    frame,
    grpc_timeout,
    only_message,
    percent_encode,
)
from evaluator.http.messages import (
    JSON,
    Call,
    Code,
    Framing,
    Headers,
    Request,
    Response,
    RpcError,
    Streamed,
    deadline_exceeded,
    header,
    refusal,
)
from evaluator.http.stream import call_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evaluator.http.routes import Answer, Routes, StreamHandler, UnaryHandler


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
class StreamCalls:
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


ERRORS: Final[Mapping[Code, tuple[str, int]]] = {
    Code.CANCELLED: ("canceled", 499),
    Code.UNKNOWN: ("unknown", 500),
    Code.INVALID_ARGUMENT: ("invalid_argument", 400),
    Code.DEADLINE_EXCEEDED: ("deadline_exceeded", 504),
    Code.NOT_FOUND: ("not_found", 404),
    Code.PERMISSION_DENIED: ("permission_denied", 403),
    Code.RESOURCE_EXHAUSTED: ("resource_exhausted", 429),
    Code.FAILED_PRECONDITION: ("failed_precondition", 400),
    Code.UNIMPLEMENTED: ("unimplemented", 501),
    Code.INTERNAL: ("internal", 500),
    Code.UNAVAILABLE: ("unavailable", 503),
    Code.DATA_LOSS: ("data_loss", 500),
    Code.UNAUTHENTICATED: ("unauthenticated", 401),
}
"""Connect's name and HTTP status of each gRPC code."""

_END_OF_STREAM: Final = b"\x02"
_VERSION, _TIMEOUT = "connect-protocol-version", "connect-timeout-ms"
_UNARY_FIELDS: Final = frozenset({_VERSION, _TIMEOUT, "content-encoding"})
_STREAM_FIELDS: Final = frozenset({_VERSION, _TIMEOUT, "connect-content-encoding"})
_TIMEOUT_DIGITS: Final = 10
_MOST_PARAMETERS: Final = 64


def _error(code: Code, message: str) -> dict[str, str]:
    error = {"code": ERRORS.get(code, ERRORS[Code.UNKNOWN])[0]}
    return {**error, "message": message} if message else error


def error_response(error: RpcError) -> Response:
    """Return the response to a unary call that failed."""
    body = json.dumps(_error(error.code, error.message), separators=(",", ":")).encode()
    return Response(ERRORS.get(error.code, ERRORS[Code.UNKNOWN])[1], body, JSON)


def end_of_stream(code: Code, message: str) -> bytes:
    """Return the envelope that ends a stream with a status."""
    end = {} if code is Code.OK else {"error": _error(code, message)}
    body = json.dumps(end, separators=(",", ":")).encode()
    return _END_OF_STREAM + frame(body)[1:]


ENVELOPES: Final = Framing(envelope, end_of_stream)


def timeout_seconds(value: str) -> float:
    """Convert a `connect-timeout-ms` to seconds. Raises RpcError INVALID_ARGUMENT."""
    if not (value.isascii() and value.isdigit() and len(value) <= _TIMEOUT_DIGITS):
        raise RpcError(Code.INVALID_ARGUMENT, "malformed connect-timeout-ms")
    return int(value) / 1000


def _check_request(request: Request, wanted: frozenset[str]) -> tuple[dict[str, str], float | None]:
    """Return the headers with the `wanted` names, and the seconds left until the caller's deadline. Raises
    RpcError for an unknown version of the protocol.
    """
    headers = {name: value for name, value in request.headers if name in wanted}
    if headers.get(_VERSION, "1") != "1":
        raise RpcError(Code.INVALID_ARGUMENT, 'connect-protocol-version must be "1"')
    if _TIMEOUT not in headers:
        return headers, None
    return headers, timeout_seconds(headers[_TIMEOUT]) - request.waited


@dataclass(frozen=True, slots=True)
class ConnectUnaryFormat:
    """A unary call: the request's and the response's body is the message."""

    headers: Headers
    limit: int

    def read(self, request: Request) -> tuple[bytes, float | None]:
        """See Format."""
        fields, left = _check_request(request, _UNARY_FIELDS)
        encoding, message = fields.get("content-encoding"), request.body
        if encoding is not None and message:
            message = expand(message, encoding, self.limit, Code.INVALID_ARGUMENT)
        return message, left

    def answer(self, message: bytes) -> Response:
        """See Format."""
        return Response(200, message, self.headers)

    def refusal(self, error: RpcError) -> Response:
        """See Format."""
        return error_response(error)


@dataclass(frozen=True, slots=True)
class GetUnary:
    """Answers GET requests of one RPC without side effects, whose message is in the query."""

    codecs: Mapping[str, Unary]
    """What answers each value of the parameter `encoding`: `json` or `proto`."""
    limit: int

    def answer(self, request: Request) -> Response | Deferred[Response]:
        """Answer a request, 415 if its codec is not known."""
        try:
            _, left = _check_request(request, _UNARY_FIELDS)
            query = parse_query(request.query)
            unary = self.codecs.get(query.get("encoding", b"").decode("latin-1"))
            if unary is None:
                return refusal(415)
            message = query_message(query, self.limit)
        except RpcError as error:
            return error_response(error)
        return unary.call(request, message, left)


def parse_query(query: str) -> dict[str, bytes]:
    """Parse the query. Raises RpcError INVALID_ARGUMENT for too many parameters or an unknown version."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1", max_num_fields=_MOST_PARAMETERS)
    except ValueError as error:
        raise RpcError(Code.INVALID_ARGUMENT, "too many query parameters") from error
    parameters = {name: value.encode("latin-1", "replace") for name, value in pairs}
    if parameters.get("connect", b"v1") != b"v1":
        raise RpcError(Code.INVALID_ARGUMENT, 'connect must be "v1"')
    return parameters


def query_message(query: Mapping[str, bytes], limit: int) -> bytes:
    """Return the message in a query. Raises RpcError as `grpc.only_message` does."""
    message = query.get("message")
    if message is None:
        raise RpcError(Code.INVALID_ARGUMENT, "the query lacks the parameter `message`")
    if query.get("base64") == b"1":
        message = message.rstrip(b"=")
        try:
            message = b64decode(message + b"=" * (-len(message) % 4), altchars=b"-_", validate=True)
        except ValueError as error:
            raise RpcError(Code.INVALID_ARGUMENT, "`message` is not base64") from error
    if limit and len(message) > limit:
        raise RpcError(Code.RESOURCE_EXHAUSTED, "request too large")
    compression = query.get("compression", b"identity").decode("latin-1")
    return expand(message, compression, limit, Code.INVALID_ARGUMENT) if message else message


@dataclass(frozen=True, slots=True)
class ConnectStreamFormat:
    """A server stream: each message is in an envelope, and a last envelope has the status."""

    headers: Headers
    limit: int
    framing: Framing = ENVELOPES

    def read(self, request: Request) -> tuple[bytes, float | None]:
        """See Format."""
        fields, left = _check_request(request, _STREAM_FIELDS)
        encoding = fields.get("connect-content-encoding")
        return only_message(request.body, encoding, self.limit, Code.INVALID_ARGUMENT), left

    def refusal(self, error: RpcError) -> Response:
        """See Format."""
        return Response(200, end_of_stream(error.code, error.message), self.headers)


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


_WEB = {
    "application/grpc-web": BINARY,
    "application/grpc-web+proto": BINARY,
    "application/grpc-web-text": TEXT,
    "application/grpc-web-text+proto": TEXT,
}


Endpoint: TypeAlias = Unary | StreamCalls


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC in all protocols but gRPC."""

    posts: Mapping[str, Endpoint]
    """What answers a POST of each content-type."""
    gets: GetUnary | None

    def answer(self, request: Request) -> Answer:
        """Answer a request for the RPC's path."""
        if request.method == "POST":
            endpoint = self._endpoint_of(request.headers)
            if endpoint is not None:
                return endpoint.answer(request)
            return refusal(415, (("accept-post", ", ".join(self.posts)),))
        if self.gets is None:
            return refusal(405, (("allow", "POST"),))
        if request.method in {"GET", "HEAD"}:
            return self.gets.answer(request)
        return refusal(405, (("allow", "GET, HEAD, POST"),))

    def too_large(self, headers: Headers) -> Response:
        """Return the response to a request whose body is over the limit, by its headers."""
        endpoint = self._endpoint_of(headers)
        if endpoint is None:
            return refusal(413)
        return endpoint.format.refusal(RpcError(Code.RESOURCE_EXHAUSTED, "request too large"))

    def _endpoint_of(self, headers: Headers) -> Endpoint | None:
        content_type = header(headers, "content-type") or ""
        return self.posts.get(content_type) or self.posts.get(canonical(content_type))


def methods(routes: Routes, limit: int) -> dict[str, Method]:
    """Return the RPCs of `routes` by path; a message may have `limit` bytes."""
    parameters = {}
    for path in {*routes.unary, *routes.streams, *routes.json_unary, *routes.json_streams}:
        posts = _posts(routes, path, limit)
        parameters[path] = Method(posts, _gets(posts, limit) if path in routes.idempotent else None)
    return parameters


def _content_type(name: str) -> Headers:
    return (("content-type", name),)


def canonical(content_type: str) -> str:
    """Return a content-type in lower case and without `charset=utf-8`, the encoding of all text here."""
    name, _, parameters = content_type.lower().partition(";")
    if parameters.replace(" ", "").replace('"', "") in {"", "charset=utf-8"}:
        return name.strip()
    return content_type


def _posts(routes: Routes, path: str, limit: int) -> dict[str, Endpoint]:
    posts: dict[str, Endpoint] = {}
    for codec, unaries, streams in (
        ("json", routes.json_unary, routes.json_streams),
        ("proto", routes.unary, routes.streams),
    ):
        unary, stream = f"application/{codec}", f"application/connect+{codec}"
        if path in unaries:
            posts[unary] = Unary(unaries[path], ConnectUnaryFormat(_content_type(unary), limit))
        if path in streams:
            posts[stream] = StreamCalls(streams[path], ConnectStreamFormat(_content_type(stream), limit))
    for name, framing in _WEB.items():
        web = WebFormat(_content_type(name), framing, limit)
        if path in routes.unary:
            posts[name] = Unary(routes.unary[path], web)
        elif path in routes.streams:
            posts[name] = StreamCalls(routes.streams[path], web)
    return posts


def _gets(posts: Mapping[str, Endpoint], limit: int) -> GetUnary:
    codecs = {codec: posts.get(f"application/{codec}") for codec in ("json", "proto")}
    return GetUnary({name: codec for name, codec in codecs.items() if isinstance(codec, Unary)}, limit)
