"""HTTP/2 frames (RFC 9113 sections 4, 6 and 7), and what a peer has done, as a connection reports it. Pure.

Frames are encoded, and cut from received bytes.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.http.hpack import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_extensions import i64

    from evaluator.http.messages import Headers


PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The client's connection preface (section 3.4)."""

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
WITH_PRIORITY: Final = 0x20

HEAD_BYTES: Final = 9
MAX_STREAM_ID: Final = 0x7FFF_FFFF
MAX_WINDOW: Final = 0x7FFF_FFFF
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME_BYTES: Final = 16_384
"""The smallest SETTINGS_MAX_FRAME_SIZE, and ours."""
LARGEST_FRAME_BYTES: Final = 0xFF_FFFF
COUNTS_AS_ONE: Final = 512
"""Bytes of a frame that take as long to parse as one more frame: a header block may have 256 fields."""

UINT32: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")
_GOAWAY: Final = struct.Struct(">II")


class Http2ErrorCode(IntEnum):
    """The reason for ending a stream or a connection (section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class Setting(IntEnum):
    """Identifiers in a SETTINGS frame (section 6.5.2)."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class ConnectionFault(Exception):
    """A protocol error that ends the whole connection with GOAWAY(`error`)."""

    def __init__(self, error: Http2ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


def start_of_head(kind: int, flags: int, size: int) -> bytes:
    """Return the first five bytes of a frame; its stream id in four bytes and its payload follow."""
    return (size << 16 | kind << 8 | flags).to_bytes(5, "big")


def head(kind: int, flags: int, stream_id: int, size: int) -> bytes:
    """Return the nine bytes before a payload of `size` bytes."""
    return start_of_head(kind, flags, size) + stream_id.to_bytes(4, "big")


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame; the payload must fit the peer's MAX_FRAME_SIZE."""
    return head(kind, flags, stream_id, len(payload)) + payload


def settings_frame(settings: Mapping[Setting, int]) -> bytes:
    """Return a SETTINGS frame (section 6.5)."""
    payload = b"".join(_SETTING.pack(key, value) for key, value in settings.items())
    return frame(SETTINGS, 0, 0, payload)


def parse_settings(payload: bytes) -> dict[int, int]:
    """Return the last value of each identifier (section 6.5.2). Raises ConnectionFault for a bad value."""
    if len(payload) % 6:
        raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "SETTINGS length")
    settings: dict[int, int] = {}
    for key, value in _SETTING.iter_unpack(payload):
        if key == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH")
        if key == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ConnectionFault(Http2ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE")
        if key == Setting.MAX_FRAME_SIZE and not (DEFAULT_FRAME_BYTES <= value <= LARGEST_FRAME_BYTES):
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE")
        settings[key] = value
    return settings


def reset_frame(stream_id: int, error: int) -> bytes:
    """Return a RST_STREAM frame (section 6.4)."""
    return frame(RST_STREAM, 0, stream_id, UINT32.pack(error))


def window_frame(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame (section 6.9)."""
    return frame(WINDOW_UPDATE, 0, stream_id, UINT32.pack(increment))


def goaway_frame(last_stream_id: int, error: int, reason: str = "") -> bytes:
    """Return a GOAWAY frame (section 6.8), with a reason for people who read a capture."""
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last_stream_id, error) + reason.encode())


def strip_padding(payload: bytes) -> bytes:
    """Remove the padding of a payload whose frame has the PADDED flag (section 6.1)."""
    if not payload:
        raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "no pad length")
    if payload[0] >= len(payload):
        raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "padding longer than the frame")
    return payload[1 : len(payload) - payload[0]]


class FrameReader(ABC):
    """The receiving end of a connection: the client's preface, then frames."""

    def __init__(self) -> None:
        self._pending = bytearray()
        """Received part of an incomplete frame."""
        self._wanted = 0
        self.unread = False
        """Whether whole frames were received that are not parsed yet."""
        self._rest, self._at = b"", 0
        """What holds those frames, and where they begin: a large read is parsed a piece after the other, and
        copying what is left each time would cost more than parsing it.
        """
        self._greeted = False
        self._closed = False

    @abstractmethod
    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Take a frame. Raises ConnectionFault."""

    def _parse(self, data: bytes, most: int) -> None:
        data, begin = self._join_unread(data)
        at: i64 = begin
        end: i64 = len(data)
        if not end:
            return
        if not self._greeted:
            at = self._greet(data)
        self._wanted = HEAD_BYTES if self._greeted else 0
        while end - at >= HEAD_BYTES and self._greeted and not self._closed:
            size: i64 = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size > DEFAULT_FRAME_BYTES:
                raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "frame too long")
            start: i64 = at + HEAD_BYTES
            if end - start < size:
                self._wanted = HEAD_BYTES + size
                break
            if most <= 0:
                self._rest, self._at, self.unread = data, at, True
                return
            most -= 1 + size // COUNTS_AS_ONE
            stream_id: i64 = (
                data[at + 5] << 24 | data[at + 6] << 16 | data[at + 7] << 8 | data[at + 8]
            ) & MAX_STREAM_ID
            kind, flags = data[at + 3], data[at + 4]
            at = start + size
            self._frame(kind, flags, stream_id, data[start:at])
        if at < end and not self._closed:
            self._pending += data[at:]

    def _join_unread(self, data: bytes) -> tuple[bytes, int]:
        """What was left and `data`, and where it begins in that; nothing while a frame is still to come."""
        if self.unread:
            rest, at = self._rest, self._at
            self._rest, self.unread = b"", False
            return (rest[at:] + data, 0) if data else (rest, at)
        if not self._pending:
            return data, 0
        self._pending += data
        if len(self._pending) < self._wanted:
            return b"", 0
        data = bytes(self._pending)
        self._pending.clear()
        return data, 0

    def _greet(self, data: bytes) -> int:
        """Return how many bytes of the preface are consumed: all or none."""
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "preface")
        self._greeted = len(data) >= len(PREFACE)
        return len(PREFACE) if self._greeted else 0


class RequestReceived:
    """A complete request with its body; its trailers were validated and dropped."""

    __slots__ = ("block", "body", "stream_id")

    def __init__(self, stream_id: int, block: Block, body: bytes) -> None:
        self.stream_id = stream_id
        self.block = block
        self.body = body

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
