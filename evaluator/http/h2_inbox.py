"""The frames that an HTTP/2 peer sends: requests (RFC 9113 sections 5.1 and 8.1) and control frames
(section 6). Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.http import h2_frames, hpack
from evaluator.http import hpack as header_fields
from evaluator.http.h2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PADDED,
    UINT32,
    WITH_PRIORITY,
    BodyTooLarge,
    ConnectionFault,
    Event,
    HeadersReceived,
    Http2ErrorCode,
    RequestReceived,
    Setting,
    StreamClosed,
    Writable,
)
from evaluator.http.h2_streams import SHORT, FloodGuard, SendQueue, Stream, Streams

if TYPE_CHECKING:
    from evaluator.http.hpack import Block
    from evaluator.http.limits import Limits


_CODED_MARGIN: Final = 65_536
"""Bytes by which an encoded header block may exceed its limit without ending the connection."""
_SELF_DEPENDENT: Final = 0x100
"""A flag of our own beyond the eight of a frame: the priority named its own stream."""


class Inbox:
    """The receiving half of a connection. Methods raise ConnectionFault for what ends it."""

    __slots__ = (
        "_begun", "_block", "_block_flags", "_block_stream", "_decoder", "_guard", "_limits", "_streams",
        "acknowledged", "events", "initial_window", "refusing",
    )  # fmt: skip

    def __init__(self, limits: Limits, streams: Streams, guard: FloodGuard) -> None:
        self.events: list[Event] = []
        self.acknowledged = False
        """Whether the peer has acknowledged our settings."""
        self.refusing = False
        """Whether new streams are refused, because our GOAWAY has named the last one."""
        self.initial_window = h2_frames.DEFAULT_WINDOW
        """Initial window of new streams, set by the peer."""
        self._limits = limits
        self._streams = streams
        self._guard = guard
        self._decoder = hpack.Decoder(limits.header_bytes)
        self._begun: list[Stream] = []
        self._block: bytearray | None = None
        self._block_stream = 0
        self._block_flags = 0

    @property
    def block_open(self) -> bool:
        """Return whether a header block waits for its CONTINUATION."""
        return self._block is not None

    def expects(self, kind: int, stream_id: int) -> bool:
        """Return whether this frame is allowed now: nothing may interrupt a header block."""
        return self._block is None or (kind == h2_frames.CONTINUATION and stream_id == self._block_stream)

    def settle(self) -> None:
        """Report the requests of this read whose bodies are incomplete."""
        if self._begun:
            self.events += [
                HeadersReceived(stream.id)
                for stream in self._begun
                if not (stream.ended or stream.discarding) and stream.id in self._streams.open
            ]
            self._begun.clear()

    def drop(self) -> None:
        """Drop all received data."""
        self.events, self._block = [], None
        self._begun.clear()

    def fail_stream(self, stream_id: int, error: Http2ErrorCode) -> None:
        """End a stream because of the peer's error."""
        if stream_id in self._streams.open:
            self.events.append(StreamClosed(stream_id, error))
        self._streams.reset(stream_id, error)
        self._guard.reset()

    def on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take in a DATA frame (section 6.1)."""
        size = len(payload)
        self._streams.count_data(size)
        if flags & PADDED:
            payload = h2_frames.strip_padding(payload)
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.require_known(stream_id)
            if not self._streams.ignores(stream_id):
                self.fail_stream(stream_id, Http2ErrorCode.STREAM_CLOSED)
            elif size < SHORT:
                self._guard.idle()
            return
        stream.credit -= size
        if stream.ended:
            self.fail_stream(stream_id, Http2ErrorCode.STREAM_CLOSED)
        elif stream.credit < 0:
            self.fail_stream(stream_id, Http2ErrorCode.FLOW_CONTROL_ERROR)
        elif self._take(stream, payload):
            if flags & END_STREAM:
                self._complete(stream)
                return
            self._streams.widen_window(stream)
            if len(payload) < SHORT:
                self._guard.idle()

    def _take(self, stream: Stream, payload: bytes) -> bool:
        """Append a piece to a body; return False if that ended the stream."""
        stream.received += len(payload)
        if header_fields.UNDECLARED < stream.declared < stream.received:
            self.fail_stream(stream.id, Http2ErrorCode.PROTOCOL_ERROR)
            return False
        if stream.discarding or not payload:
            return True
        if 0 < self._limits.body_bytes < stream.received:
            self._discard(stream)
            return True
        self._streams.keep(stream, payload)
        return True

    def _discard(self, stream: Stream) -> None:
        self._streams.discard(stream)
        self.events.append(BodyTooLarge(stream.id, stream.block))

    def _complete(self, stream: Stream) -> None:
        """Report the request whose last frame has arrived."""
        if header_fields.UNDECLARED != stream.declared != stream.received:
            self.fail_stream(stream.id, Http2ErrorCode.PROTOCOL_ERROR)
            return
        stream.ended = True
        if not stream.discarding:
            body = self._streams.take(stream)
            self.events.append(RequestReceived(stream.id, stream.block, body))

    def on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take in a HEADERS frame (section 6.2)."""
        if not stream_id & 1:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "stream id")
        if flags & PADDED:
            payload = h2_frames.strip_padding(payload)
        if flags & WITH_PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "priority")
            if UINT32.unpack_from(payload)[0] & MAX_STREAM_ID == stream_id:
                flags |= _SELF_DEPENDENT
            payload = payload[5:]
        if flags & END_HEADERS:
            self._on_block(flags, stream_id, payload)
            return
        if not payload:
            self._guard.idle()
        self._block = bytearray(payload)
        self._block_stream = stream_id
        self._block_flags = flags

    def on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take in a CONTINUATION frame (section 6.10)."""
        if self._block is None:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        self._block += payload
        if len(self._block) > self._limits.header_bytes + _CODED_MARGIN:
            raise ConnectionFault(Http2ErrorCode.ENHANCE_YOUR_CALM, "header block too long")
        if flags & END_HEADERS:
            block, self._block = bytes(self._block), None
            self._on_block(self._block_flags, stream_id, block)
        elif len(payload) < SHORT:
            self._guard.idle()

    def _on_block(self, flags: int, stream_id: int, coded: bytes) -> None:
        """Take in a whole header block; it is decoded in any case, to keep the HPACK tables in step."""
        try:
            block = self._decoder.decode(coded)
        except hpack.HpackError as error:
            raise ConnectionFault(Http2ErrorCode.COMPRESSION_ERROR, str(error)) from None
        except hpack.HeadersTooLarge:
            raise ConnectionFault(Http2ErrorCode.ENHANCE_YOUR_CALM, "header block too large") from None
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            self._on_trailers(stream, flags, block)
        elif stream_id > self._streams.highest:
            self._on_request(flags, stream_id, block)
        elif self._streams.ignores(stream_id):
            self._guard.idle()
        else:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "stream id not increasing")

    def _on_request(self, flags: int, stream_id: int, block: Block) -> None:
        streams = self._streams
        streams.highest = stream_id
        if self.refusing or len(streams.open) >= self._limits.streams_per_connection:
            streams.reset(stream_id, Http2ErrorCode.REFUSED_STREAM)
            if not self.refusing:
                self._guard.count_refusal(early=not self.acknowledged)
            return
        streams.processed = stream_id
        length = header_fields.content_length(block)
        if length is None or flags & _SELF_DEPENDENT:
            self.fail_stream(stream_id, Http2ErrorCode.PROTOCOL_ERROR)
            return
        stream = streams.begin(stream_id, block, self.initial_window)
        stream.declared = length
        if 0 < self._limits.body_bytes < length:
            self._discard(stream)
        if flags & END_STREAM:
            self._complete(stream)
        else:
            self._begun.append(stream)

    def _on_trailers(self, stream: Stream, flags: int, block: Block) -> None:
        if stream.ended:
            self.fail_stream(stream.id, Http2ErrorCode.STREAM_CLOSED)
        elif header_fields.may_follow_a_body(block) and flags & END_STREAM and not flags & _SELF_DEPENDENT:
            self._complete(stream)
        else:
            self.fail_stream(stream.id, Http2ErrorCode.PROTOCOL_ERROR)


class Control:
    """The part of a connection that takes control frames. Methods raise ConnectionFault for what ends it."""

    __slots__ = ("_guard", "_inbox", "_out", "_streams", "pings")

    def __init__(self, out: SendQueue, streams: Streams, guard: FloodGuard, inbox: Inbox) -> None:
        self._out = out
        self._streams = streams
        self._guard = guard
        self._inbox = inbox
        self.pings = 0
        """Number of our PINGs that the peer has not acknowledged."""

    def on_priority(self, stream_id: int, payload: bytes) -> None:
        """Ignored but for its form (RFC 9113 section 5.3.2)."""
        self._guard.idle()
        if not stream_id:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "stream id")
        if len(payload) != 5:
            error = Http2ErrorCode.FRAME_SIZE_ERROR
        elif UINT32.unpack_from(payload)[0] & MAX_STREAM_ID == stream_id:
            error = Http2ErrorCode.PROTOCOL_ERROR
        else:
            return
        if stream_id not in self._streams.open:
            raise ConnectionFault(error, "PRIORITY")
        self._inbox.fail_stream(stream_id, error)

    def on_rst_stream(self, stream_id: int, payload: bytes) -> None:
        """The peer resets a stream."""
        if len(payload) != 4:
            raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM length")
        self._streams.require_known(stream_id)
        stream = self._streams.open.get(stream_id)
        if stream is not None:
            self._streams.drop(stream)
            self._streams.end(stream_id)
            self._inbox.events.append(StreamClosed(stream_id, UINT32.unpack(payload)[0]))
        self._guard.reset()

    def on_settings(self, flags: int, payload: bytes) -> None:
        """The peer's settings, or its acknowledgement of ours."""
        self._guard.idle()
        if flags & ACK:
            if payload:
                raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ack with a payload")
            self._inbox.acknowledged = True
            return
        settings = h2_frames.parse_settings(payload)
        self._out.frame_bytes = settings.get(Setting.MAX_FRAME_SIZE, self._out.frame_bytes)
        if settings.get(Setting.HEADER_TABLE_SIZE, hpack.TABLE_BYTES) < hpack.TABLE_BYTES:
            self._out.shrink_table()
        self._out.pieces.append(h2_frames.frame(h2_frames.SETTINGS, ACK, 0))
        window = settings.get(Setting.INITIAL_WINDOW_SIZE, self._inbox.initial_window)
        change = window - self._inbox.initial_window
        self._inbox.initial_window = window
        for stream in list(self._streams.open.values()) if change else ():
            stream.window += change
            if stream.window > MAX_WINDOW:
                raise ConnectionFault(Http2ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE")
            if stream.queue and self._out.flush(stream):
                self._report_flushed(stream)

    def on_ping(self, flags: int, payload: bytes) -> None:
        """A ping, or the acknowledgement of ours."""
        if len(payload) != 8:
            raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "PING length")
        self._guard.idle()
        if flags & ACK:
            self.pings = max(0, self.pings - 1)
        else:
            self._out.pieces.append(h2_frames.frame(h2_frames.PING, ACK, 0, payload))

    def on_window_update(self, stream_id: int, payload: bytes) -> None:
        """A larger window, of a stream or of the connection."""
        if len(payload) != 4:
            raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE length")
        self._guard.idle()
        increment = UINT32.unpack(payload)[0] & MAX_STREAM_ID
        if not stream_id:
            self._widen(increment)
            return
        self._streams.require_known(stream_id)
        stream = self._streams.open.get(stream_id)
        if stream is None:
            return
        stream.window += increment
        if not increment:
            self._inbox.fail_stream(stream_id, Http2ErrorCode.PROTOCOL_ERROR)
        elif stream.window > MAX_WINDOW:
            self._inbox.fail_stream(stream_id, Http2ErrorCode.FLOW_CONTROL_ERROR)
        elif stream.queue and self._out.flush(stream):
            self._report_flushed(stream)

    def _widen(self, increment: int) -> None:
        if not increment:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        for stream in self._out.widen(increment):
            self._report_flushed(stream)

    def _report_flushed(self, stream: Stream) -> None:
        """Report the stream as sent or as writable: nothing is queued on it any more."""
        if stream.ending:
            self._streams.close(stream)
        else:
            self._inbox.events.append(Writable(stream.id))
