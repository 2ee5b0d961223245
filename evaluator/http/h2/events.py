"""What a peer has done, as an HTTP/2 connection reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from evaluator.http.hpack.header_fields import Block
    from evaluator.http.messages import Headers


class RequestReceived(NamedTuple):
    """A complete request with its body; its trailers were validated and dropped."""

    stream_id: int
    block: Block
    body: bytes

    @property
    def headers(self) -> Headers:
        """Return the header fields, names in lower case and pseudo-headers first."""
        return self.block.fields


@dataclass(frozen=True, slots=True)
class HeadersReceived:
    """A request began, and its body did not end within the same read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class BodyTooLarge:
    """The body exceeds the limit, or will by its content-length, and is discarded. Answer on this stream."""

    stream_id: int
    block: Block


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The peer reset a stream, or we did for its error. Nothing more can be sent on it."""

    stream_id: int
    error: int
    """An ErrorCode, or any other number that the peer sent."""


@dataclass(frozen=True, slots=True)
class Writable:
    """All DATA that was queued on the stream is in the output."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection has ended, by an error (our GOAWAY is in the output) or by the peer's GOAWAY."""

    error: int


Event: TypeAlias = (
    RequestReceived | HeadersReceived | BodyTooLarge | StreamClosed | Writable | ConnectionClosed
)
