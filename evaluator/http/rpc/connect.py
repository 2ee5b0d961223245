"""The Connect protocol: unary calls as ordinary POST and GET, server streams in envelopes, errors in JSON.

It is specified in https://connectrpc.com/docs/protocol, and is the same over HTTP/1.1 and HTTP/2.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from evaluator.http.messages import JSON, Code, Framing, Headers, Request, Response, RpcError, refusal
from evaluator.http.rpc.grpc_framing import envelope, expand, frame, only_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.http.deferred import Deferred
    from evaluator.http.rpc.endpoints import Unary

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
