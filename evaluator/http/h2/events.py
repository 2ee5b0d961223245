"""What a peer has done, as an HTTP/2 connection reports it to its listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from evaluator.http.h2.headers.hpack import Block
    from evaluator.http.messages import Headers


class RequestReceived(NamedTuple):
    """A request, whole: its body is complete, and its trailers were checked and dropped."""

    stream_id: int
    block: Block
    body: bytes

    @property
    def headers(self) -> Headers:
        """Names in lower case, pseudo-headers first."""
        return self.block.fields


@dataclass(frozen=True, slots=True)
class HeadersReceived:
    """A request began whose body did not end within the same read."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class BodyTooLarge:
    """The body is, or will be, over the limit and is discarded. The listener answers on this stream."""

    stream_id: int
    block: Block


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The peer reset a stream, or we did for its error. Nothing more can be sent on it."""

    stream_id: int
    error: int
    """An ErrorCode, or whatever number the peer sent."""


@dataclass(frozen=True, slots=True)
class Writable:
    """All that waited on the stream has been handed to the output."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection is over, by an error (our GOAWAY is in the output) or by the peer's GOAWAY."""

    error: int


Event: TypeAlias = (
    RequestReceived | HeadersReceived | BodyTooLarge | StreamClosed | Writable | ConnectionClosed
)
