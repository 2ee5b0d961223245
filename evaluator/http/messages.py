"""What is asked and answered, whichever protocol carries it: requests, responses, calls, streams."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Names in lower case, in order of arrival; repeated names stay apart."""


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


def too_late() -> RpcError:
    """What ends a call whose caller waits no longer."""
    return RpcError(Code.DEADLINE_EXCEEDED, "deadline exceeded")


def header(headers: Headers, name: str) -> str | None:
    """The first value of `name` (lower case), or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


class Call(NamedTuple):
    """One RPC as its handler sees it."""

    path: str
    """`/package.Service/Method`."""
    headers: Headers
    peer: str


class Request(NamedTuple):
    """One plain HTTP request, read whole."""

    method: str
    path: str
    """Percent-decoded, without the query."""
    query: str
    headers: Headers
    body: bytes
    peer: str
    waited: float = 0.0
    """Seconds since it came, behind others of its connection."""


class Response(NamedTuple):
    """One plain HTTP response; the listener adds content-length and date."""

    status: int
    body: bytes = b""
    headers: Headers = ()


class MessageStream(Protocol):
    """A server stream, open. All calls happen on the loop; none blocks.

    The subscriber owns latest-value-wins: it sends only while `writable`, and when `on_writable` comes it
    sends what is newest by then. `send` on a stream that is not writable or has ended is a programming error
    and raises RuntimeError.
    """

    on_writable: Callable[[], None] | None
    """Called once flow control and the transport take more, after `writable` was False."""
    on_closed: Callable[[], None] | None
    """Called once when the stream has ended for whatever reason but `close`."""
    on_ended: Callable[[Code], None] | None
    """Called once with the status that it ended with, whoever ended it: CANCELLED where the peer did."""

    @property
    def writable(self) -> bool:
        """True while open and nothing sent before is still waiting in a buffer of ours."""

    @property
    def closed(self) -> bool:
        """True once ended by either side."""

    def send(self, message: bytes) -> None:
        """Send one message (serialised, unframed)."""

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status, as far as its format can say one; harmless if it has ended."""


class ByteStream(MessageStream, Protocol):
    """The body of a response that is sent as it comes: a message is any bytes."""

    def finish(self, last: bytes = b"") -> None:
        """End the body well, with `last` behind whatever waits; harmless if it has ended."""

    def break_off(self) -> None:
        """End the body so that the peer sees it was cut; `on_closed` is not called. Harmless if ended."""


def _whole(message: bytes) -> Sequence[bytes]:
    return (message,)


@dataclass(frozen=True, slots=True)
class Framing:
    """How a protocol writes messages and a status into a response."""

    pieces: Callable[[bytes], Sequence[bytes]] = _whole
    """A message as it goes out; a large one as a piece of its own, which all streams share."""
    ending: Callable[[Code, str], bytes] | None = None
    """The end of a response, where the format can say why it ended."""
    sized: bool = False
    """The headers give the length: an end before it cannot be taken for the whole."""


PLAIN: Final = Framing()
SIZED: Final = Framing(sized=True)


@dataclass(frozen=True, slots=True)
class Streamed:
    """A plain HTTP response whose body lasts: headers at once, then what `start` sends at any time."""

    status: int
    """Of a response that may have a body: not 204, not 304."""
    headers: Headers
    """With a content-length just as many bytes are to be sent."""
    start: Callable[[ByteStream], None]
    """Called once headers are sent, not for HEAD: keeps the ByteStream, sets its callbacks, returns."""
    framing: Framing = PLAIN
    seconds: float | None = None
    """How long the caller waits for the end; DEADLINE_EXCEEDED then."""
