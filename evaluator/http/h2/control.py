"""Handles control frames: flow control, resets, settings, pings (RFC 9113 section 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.http.h2 import frames
from evaluator.http.h2.events import StreamClosed, Writable
from evaluator.http.h2.frames import (
    ACK,
    MAX_STREAM_ID,
    MAX_WINDOW,
    UINT32,
    ConnectionFault,
    ErrorCode,
    Setting,
)
from evaluator.http.hpack import hpack

if TYPE_CHECKING:
    from evaluator.http.h2.guard import FloodGuard
    from evaluator.http.h2.inbox import Inbox
    from evaluator.http.h2.outbox import Outbox
    from evaluator.http.h2.stream_state import Stream
    from evaluator.http.h2.streams import Streams


class Control:
    """The part of a connection that takes control frames. Methods raise ConnectionFault for what ends it."""

    __slots__ = ("_guard", "_inbox", "_out", "_streams", "pings")

    def __init__(self, out: Outbox, streams: Streams, guard: FloodGuard, inbox: Inbox) -> None:
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
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "stream id")
        if len(payload) != 5:
            error = ErrorCode.FRAME_SIZE_ERROR
        elif UINT32.unpack_from(payload)[0] & MAX_STREAM_ID == stream_id:
            error = ErrorCode.PROTOCOL_ERROR
        else:
            return
        if stream_id not in self._streams.open:
            raise ConnectionFault(error, "PRIORITY")
        self._inbox.fail_stream(stream_id, error)

    def on_rst_stream(self, stream_id: int, payload: bytes) -> None:
        """The peer resets a stream."""
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM length")
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
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ack with a payload")
            self._inbox.acknowledged = True
            return
        settings = frames.parse_settings(payload)
        self._out.frame_bytes = settings.get(Setting.MAX_FRAME_SIZE, self._out.frame_bytes)
        if settings.get(Setting.HEADER_TABLE_SIZE, hpack.TABLE_BYTES) < hpack.TABLE_BYTES:
            self._out.shrink_table()
        self._out.pieces.append(frames.frame(frames.SETTINGS, ACK, 0))
        window = settings.get(Setting.INITIAL_WINDOW_SIZE, self._inbox.initial_window)
        change = window - self._inbox.initial_window
        self._inbox.initial_window = window
        for stream in list(self._streams.open.values()) if change else ():
            stream.window += change
            if stream.window > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE")
            if stream.queue and self._out.flush(stream):
                self._report_flushed(stream)

    def on_ping(self, flags: int, payload: bytes) -> None:
        """A ping, or the acknowledgement of ours."""
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "PING length")
        self._guard.idle()
        if flags & ACK:
            self.pings = max(0, self.pings - 1)
        else:
            self._out.pieces.append(frames.frame(frames.PING, ACK, 0, payload))

    def on_window_update(self, stream_id: int, payload: bytes) -> None:
        """A larger window, of a stream or of the connection."""
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE length")
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
            self._inbox.fail_stream(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif stream.window > MAX_WINDOW:
            self._inbox.fail_stream(stream_id, ErrorCode.FLOW_CONTROL_ERROR)
        elif stream.queue and self._out.flush(stream):
            self._report_flushed(stream)

    def _widen(self, increment: int) -> None:
        if not increment:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        for stream in self._out.widen(increment):
            self._report_flushed(stream)

    def _report_flushed(self, stream: Stream) -> None:
        """Report the stream as sent or as writable: nothing is queued on it any more."""
        if stream.ending:
            self._streams.close(stream)
        else:
            self._inbox.events.append(Writable(stream.id))
