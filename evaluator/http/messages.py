"""Requests, responses, RPC calls and streams, as handlers see them in every protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a lower-case name and a value, in order of arrival; a repeated name is not merged."""


class Code(IntEnum):
    """gRPC status codes that we send (https://grpc.io/docs/guides/status-codes/)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """Raised by an RPC handler to end the call with a status other than OK."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def deadline_exceeded() -> RpcError:
    """Return the error that ends a call whose deadline has passed."""
    return RpcError(Code.DEADLINE_EXCEEDED, "deadline exceeded")


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of the header `name` (lower case), or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


def host_of(peer: str) -> str:
    """Return the address of a peer without its port."""
    return peer.rpartition(":")[0] or peer


class Call:
    """One RPC as its handler sees it."""

    __slots__ = ("client", "headers", "path", "peer")

    def __init__(self, path: str, headers: Headers, peer: str, client: str = "") -> None:
        self.path = path
        """`/package.Service/Method`."""
        self.headers = headers
        self.peer = peer
        self.client = client
        """The name in the client's certificate, over HTTP/2; empty: it has shown none."""


class Request:
    """One HTTP request with its complete body."""

    __slots__ = ("body", "headers", "method", "path", "peer", "query", "waited")

    def __init__(self, method: str, path: str, query: str, headers: Headers, body: bytes, peer: str) -> None:
        self.method = method
        self.path = path
        """The path, percent-decoded and without the query."""
        self.query = query
        self.headers = headers
        self.body = body
        self.peer = peer
        self.waited = 0.0
        """Seconds that the request has waited behind earlier requests of its connection."""


class Response(NamedTuple):
    """One HTTP response with its complete body; the listener adds content-length and date."""

    status: int
    body: bytes = b""
    headers: Headers = ()


class Zipped(NamedTuple):
    """A message in gzip's format behind its prefix, for all gRPC streams whose clients take it."""

    pieces: tuple[bytes, ...]


class MessageStream(Protocol):
    """An open server stream. All methods are called on the event loop; none blocks.

    What is sent while `writable` is false is refused: when `on_writable` is called, the handler sends the
    newest value, and older ones are skipped.
    """

    on_writable: Callable[[], None] | None
    """Called when flow control and the transport accept data again, after `writable` was False."""
    on_closed: Callable[[], None] | None
    """Called once when the stream has ended in any other way than by `close`."""
    on_ended: Callable[[Code], None] | None
    """Called once with the final status, whichever side ended the stream: CANCELLED if the peer did."""

    @property
    def writable(self) -> bool:
        """Return whether the stream is open and the server buffers no earlier message of it."""

    @property
    def closed(self) -> bool:
        """Return whether either side has ended the stream."""

    @property
    def gzip(self) -> bool:
        """Return whether a message may be Zipped."""

    def send(self, message: bytes | Zipped) -> bool:
        """Send one serialised message, to which the framing is added; return False, and send nothing, while
        the stream is not `writable`.
        """

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status, if its format can carry one; do nothing if it has ended."""


class ByteStream(MessageStream, Protocol):
    """A response body that is sent piece by piece: a message is any bytes."""

    def finish(self, last: bytes = b"") -> None:
        """Complete the body, with `last` behind the buffered bytes; do nothing if it has ended."""

    def break_off(self) -> None:
        """End the body as incomplete, without calling `on_closed`; do nothing if it has ended."""


def _whole(message: bytes) -> Sequence[bytes]:
    return (message,)


@dataclass(frozen=True, slots=True)
class Framing:
    """How a protocol encodes messages and the final status in a response body."""

    pieces: Callable[[bytes], Sequence[bytes]] = _whole
    """Encodes a message; a large one is a piece of its own, so that all streams share its bytes."""
    ending: Callable[[Code, str], bytes] | None = None
    """Encodes the final status; None if the format cannot carry one."""
    sized: bool = False
    """Whether the headers give the length, so that a client notices a body that ends early."""


PLAIN: Final = Framing()
SIZED: Final = Framing(sized=True)


@dataclass(frozen=True, slots=True)
class Streamed:
    """An HTTP response that sends its headers at once, and its body piece by piece later."""

    status: int
    """The status of a response that may have a body: neither 204 nor 304."""
    headers: Headers
    """The headers. If they have a content-length, exactly as many bytes must be sent."""
    start: Callable[[ByteStream], None]
    """Called before the headers are sent, not for HEAD: keeps the ByteStream, sets its callbacks, returns."""
    framing: Framing = PLAIN
    seconds: float | None = None
    """Seconds until the stream is ended with DEADLINE_EXCEEDED; None for no deadline."""


BODILESS: Final = frozenset({204, 304})
"""Statuses whose responses have neither a body nor a content-length."""
JSON: Final[Headers] = (("content-type", "application/json"),)
_TEXT: Final[Headers] = (("content-type", "text/plain; charset=utf-8"),)
_REASONS: Final = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    499: "Client Closed Request",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def reason_phrase(status: int) -> str:
    """Return the reason phrase of `status` (RFC 9110), or `Unknown`."""
    return _REASONS.get(status, "Unknown")


def refusal(status: int, headers: Headers = ()) -> Response:
    """Return a plain-text response that refuses a request with `status`."""
    return Response(status, reason_phrase(status).encode() + b"\n", _TEXT + headers)
