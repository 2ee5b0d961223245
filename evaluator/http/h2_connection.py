"""The server's side of one HTTP/2 connection (RFC 9113) as a state machine: it takes bytes and returns events
and bytes, does no I/O and reads no clock.

A protocol error of the peer raises nothing here: it becomes RST_STREAM or GOAWAY in the output.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from evaluator.http import h2_frames
from evaluator.http.h2_frames import (
    ACK,
    MAX_STREAM_ID,
    UINT32,
    ConnectionClosed,
    ConnectionFault,
    Event,
    FrameReader,
    Http2ErrorCode,
    Setting,
)
from evaluator.http.h2_inbox import Control, Inbox
from evaluator.http.h2_streams import CONNECTION_WINDOW, STREAM_WINDOW, FloodGuard, SendQueue, Stream, Streams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.http.hpack import Block
    from evaluator.http.limits import Limits

_TYPE: Final = 3
_FLAGS: Final = 4
"""Where they stand in a frame's head."""
_HEADERS: Final = bytes([h2_frames.HEADERS])


class Http2Connection(FrameReader):
    """One connection. Methods that send do nothing on a stream that is not open: the peer may have closed it
    meanwhile. `receive` returns what happened; `take_output` then returns what is to be written. Once either
    side has announced its end (`draining`) and `open_streams` is 0, the listener may close the transport.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._out = SendQueue()
        self._streams = Streams(self._out)
        self._guard = FloodGuard(limits, self._out, self._streams)
        self._now = 0.0
        self._inbox = Inbox(limits, self._streams, self._guard)
        self._control = Control(self._out, self._streams, self._guard, self._inbox)
        self._settled = False
        self.draining = False
        """Whether either side has sent GOAWAY."""
        self._owed: list[tuple[Stream, int]] = []
        """Responses of this second that flow control holds back, and their bytes."""
        self._late: list[tuple[Stream, int]] = []
        """Responses of the second before that flow control holds back, and their bytes."""
        settings = {
            Setting.MAX_CONCURRENT_STREAMS: limits.streams_per_connection,
            Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            Setting.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        }
        window = h2_frames.window_frame(0, CONNECTION_WINDOW - h2_frames.DEFAULT_WINDOW)
        self._out.pieces += (h2_frames.settings_frame(settings), window)

    # ------------------------------------------------------------------ what the listener asks

    @property
    def open_streams(self) -> int:
        """Return the number of streams whose response is not all in the output."""
        return len(self._streams.open)

    @property
    def header_block_open(self) -> bool:
        """Return whether a header block has begun and its end has not arrived."""
        if not self._pending:
            return self._inbox.block_open
        begun = self._greeted and self._pending[_TYPE:_FLAGS] == _HEADERS
        return begun or self._inbox.block_open

    @property
    def waiting_bytes(self) -> int:
        """Return the number of response bytes that flow control holds back."""
        return self._out.waiting_bytes

    @property
    def held_bytes(self) -> int:
        """Return about how many bytes unanswered requests and unread responses take in memory."""
        return self._streams.held + len(self._pending) + len(self._rest)

    @property
    def calm(self) -> bool:
        """Return whether no message of the peer is incomplete, no response is held back, and neither side has
        announced the end.
        """
        return not (self._pending or self._rest or self._late or self._owed or self.draining)

    @property
    def unanswered_pings(self) -> int:
        """Number of our PINGs that the peer has not acknowledged."""
        return self._control.pings

    def is_open(self, stream_id: int) -> bool:
        """Return whether the stream can still be sent on."""
        return self._sendable(stream_id) is not None

    def writable(self, stream_id: int) -> bool:
        """Return whether the stream is open and nothing is queued on it."""
        stream = self._sendable(stream_id)
        return stream is not None and not stream.queue

    # ------------------------------------------------------------------ sending

    def block(self, stream_id: int) -> Block:
        """Return the header block of an open stream's request."""
        return self._streams.open[stream_id].block

    def discard_body(self, stream_id: int) -> None:
        """Drop an open stream's body; the response ends the stream."""
        self._streams.discard(self._streams.open[stream_id])

    def take_output(self) -> bytes:
        """Return all bytes to write now."""
        return self._out.take()

    def send_headers(self, stream_id: int, block: bytes, end_stream: bool = False) -> None:
        """Send response headers; `block` is a result of `hpack.encode_block`."""
        stream = self._sendable(stream_id)
        if stream is not None:
            self._out.send_headers(stream_id, block, end_stream)
            if end_stream:
                self._streams.close(stream)

    def send_body(self, stream_id: int, chunk: bytes, end_stream: bool = False) -> None:
        """Send as much as the peer's windows allow and queue the rest."""
        stream = self._sendable(stream_id)
        if stream is not None:
            stream.ending = end_stream
            if self._out.send_body(stream, chunk) and end_stream:
                self._streams.close(stream)

    def send_message(self, stream_id: int, head: bytes, pieces: Iterable[bytes]) -> bool:
        """Send a message of a stream, behind its response headers `head` unless they were sent (empty);
        return False, and send nothing, while the stream is not `writable`.
        """
        stream = self._streams.open.get(stream_id)
        if stream is None or stream.queue or stream.ending or self._closed:
            return False
        if head:
            self._out.send_headers(stream_id, head, end_stream=False)
        for piece in pieces:
            self._out.send_body(stream, piece)
        return True

    def send_response(self, stream_id: int, block: bytes, body: bytes, trailers: bytes | None) -> None:
        """Send a complete response, by the shortest way through the code."""
        stream = self._sendable(stream_id)
        if stream is None:
            return
        if self._out.respond(stream, block, body, trailers):
            self._streams.close(stream)
        else:
            self._owed.append((stream, len(body)))

    def send_trailers(self, stream_id: int, block: bytes) -> None:
        """Send trailers behind the queued DATA, and end the stream."""
        stream = self._sendable(stream_id)
        if stream is not None:
            stream.ending = True
            stream.trailers = block
            if self._out.flush(stream):
                self._streams.close(stream)

    def reset(self, stream_id: int, error: int) -> None:
        """End the stream at once with RST_STREAM; what is queued on it is dropped."""
        if not self._closed and stream_id in self._streams.open:
            self._streams.reset(stream_id, error)

    def goaway(self, error: int = 0, last: bool = True) -> None:
        """Announce the end of the connection. `last=False` only asks the peer to open no more streams;
        `last=True` says which were processed and refuses new ones.
        """
        if not self._closed:
            self.draining = True
            self._inbox.refusing = self._inbox.refusing or last
            last_stream_id = self._streams.processed if last else MAX_STREAM_ID
            self._out.pieces.append(h2_frames.goaway_frame(last_stream_id, error))

    def abandon(self, error: int, reason: str) -> None:
        """End the connection at once, and send the reason to the peer; nothing of it is kept."""
        if not self._closed:
            self._out.pieces.append(h2_frames.goaway_frame(self._streams.processed, error, reason))
            self.drop()

    def drop(self) -> None:
        """Drop all received data of a closed connection."""
        self._close(0)
        self._streams.clear()
        self._inbox.drop()
        self._owed, self._late = [], []

    def ping(self) -> None:
        """Send a PING; see `unanswered_pings`."""
        if not self._closed:
            self._control.pings += 1
            self._out.pieces.append(h2_frames.frame(h2_frames.PING, 0, 0, bytes(8)))

    def tick(self) -> None:
        """Begin another second: reset the flood guard, and count responses that wait for a second as held."""
        self._guard.tick()
        if not (self._late or self._owed):
            return
        for stream, size in self._late:
            if self._streams.open.get(stream.id) is stream:
                self._streams.hold(stream, size)
        self._late, self._owed = self._owed, []

    def _sendable(self, stream_id: int) -> Stream | None:
        stream = self._streams.open.get(stream_id)
        return None if stream is None or stream.ending or self._closed else stream

    # ------------------------------------------------------------------ receiving

    def receive(self, data: bytes, now: float = 0.0, most: int = sys.maxsize) -> list[Event]:
        """Parse received bytes, which may be cut anywhere, and return the events of at most `most` frames;
        fewer if they are large. `now` is in seconds, for limits on frequency. While frames are `unread`, call
        it again, with or without more bytes.
        """
        if self._closed:
            return []
        self._now = now
        inbox = self._inbox
        try:
            self._parse(data, most)
        except ConnectionFault as fault:
            goaway = h2_frames.goaway_frame(self._streams.processed, fault.error, fault.reason)
            self._out.pieces.append(goaway)
            self._close(fault.error)
        else:
            inbox.settle()
        # Their handlers keep what they need of them, and until the next bytes nothing else does.
        events, inbox.events = inbox.events, []
        return events

    def _close(self, error: int) -> None:
        self._closed = self.draining = True
        self._pending.clear()
        self._rest, self.unread = b"", False
        self._inbox.events.append(ConnectionClosed(error))

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._inbox.expects(kind, stream_id):
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "header block interrupted")
        if not self._settled:
            if kind != h2_frames.SETTINGS or flags & ACK:
                raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "SETTINGS must come first")
            self._settled = True
        if kind == h2_frames.DATA:
            self._inbox.on_data(flags, stream_id, payload)
        elif kind == h2_frames.HEADERS:
            self._inbox.on_headers(flags, stream_id, payload)
        elif kind == h2_frames.CONTINUATION:
            self._inbox.on_continuation(flags, stream_id, payload)
        elif kind == h2_frames.WINDOW_UPDATE:
            self._control.on_window_update(stream_id, payload)
        elif kind == h2_frames.RST_STREAM:
            self._control.on_rst_stream(stream_id, payload)
        elif kind == h2_frames.PRIORITY:
            self._control.on_priority(stream_id, payload)
        else:
            self._on_connection_frame(kind, flags, stream_id, payload)

    def _on_connection_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind > h2_frames.CONTINUATION:
            self._guard.idle()
        elif kind == h2_frames.PUSH_PROMISE or stream_id:
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "not a client's frame")
        elif kind == h2_frames.PING:
            self._control.on_ping(flags, payload)
            if not flags & ACK:
                self._guard.ping(self._now, streams=bool(self._streams.open))
        elif kind == h2_frames.SETTINGS:
            self._control.on_settings(flags, payload)
        else:
            self._on_goaway(payload)

    def _on_goaway(self, payload: bytes) -> None:
        if len(payload) < 8:
            raise ConnectionFault(Http2ErrorCode.FRAME_SIZE_ERROR, "GOAWAY length")
        self.draining = True
        self._guard.idle()
        if not self._streams.open:
            self._out.pieces.append(h2_frames.goaway_frame(self._streams.processed, 0))
            self._close(UINT32.unpack_from(payload, 4)[0])
