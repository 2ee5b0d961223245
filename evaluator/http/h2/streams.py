"""The streams of one HTTP/2 connection: open ones, recently closed ones, and request bodies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evaluator.http.h2.frames import ConnectionFault, ErrorCode, reset_frame, window_frame
from evaluator.http.h2.stream_state import STREAM_WINDOW, Stream

if TYPE_CHECKING:
    from evaluator.http.h2.outbox import Outbox
    from evaluator.http.hpack.header_fields import Block

CONNECTION_WINDOW = 1_048_576
PIECE_BYTES = 64
"""About how many bytes of memory a piece of a body takes beside its content."""
_REMEMBERED = 512


class Streams:
    """All streams of a connection."""

    __slots__ = ("_credit", "_ended", "_out", "_reset", "held", "highest", "open", "processed")

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.open: dict[int, Stream] = {}
        self.highest = 0
        """The highest stream id that the peer has used."""
        self.processed = 0
        """The highest stream id that was not refused."""
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)
        self._reset: dict[int, None] = {}
        """Streams that our RST_STREAM ended: frames that the peer sent before it knew are ignored."""
        self._credit = CONNECTION_WINDOW
        """Bytes of DATA that the peer may still send on the connection."""
        self.held = 0
        """About how many bytes all open streams take in memory."""

    # ------------------------------------------------------------------ lives

    def begin(self, stream_id: int, block: Block, window: int) -> Stream:
        """Open a stream on which we may send `window` bytes of DATA."""
        stream = self.open[stream_id] = Stream(stream_id, block, window)
        self.held += stream.held
        return stream

    def hold(self, stream: Stream, size: int) -> None:
        """Add `size`, which may be negative, to the bytes that an open stream takes in memory."""
        stream.held += size
        self.held += size

    def clear(self) -> None:
        """Drop all streams of a closed connection."""
        for stream in tuple(self.open.values()):
            self.drop(stream)

    def close(self, stream: Stream) -> None:
        """Close a stream whose response is sent; with RST_STREAM(NO_ERROR) if the request is incomplete."""
        if stream.ended:
            del self.open[stream.id]
            self.held -= stream.held
            self.end(stream.id)
        else:
            self.reset(stream.id, ErrorCode.NO_ERROR)

    def drop(self, stream: Stream) -> None:
        """Close a stream and drop its data."""
        del self.open[stream.id]
        self.held -= stream.held
        self._out.forget(stream)

    def reset(self, stream_id: int, error: int) -> None:
        """Send RST_STREAM, whether the stream is open or not."""
        stream = self.open.get(stream_id)
        if stream is not None:
            self.drop(stream)
        self._out.pieces.append(reset_frame(stream_id, error))
        self._reset[stream_id] = None
        if len(self._reset) > _REMEMBERED:
            del self._reset[next(iter(self._reset))]

    def end(self, stream_id: int) -> None:
        """Remember that the peer had ended its side of a closed stream."""
        self._ended.append(stream_id)

    def require_known(self, stream_id: int) -> None:
        """Raise ConnectionFault unless the peer has used this stream id."""
        if stream_id > self.highest or not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "idle stream")

    def ignores(self, stream_id: int) -> bool:
        """Return whether frames on this closed stream are ignored; after END_STREAM raise ConnectionFault."""
        if stream_id in self._reset:
            return True
        if stream_id in self._ended:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "stream was ended")
        return False

    # ------------------------------------------------------------------ bodies

    def count_data(self, size: int) -> None:
        """Subtract DATA from the connection's window, and widen it: bodies have limits of their own."""
        self._credit -= size
        if self._credit < CONNECTION_WINDOW // 2:
            self._out.pieces.append(window_frame(0, CONNECTION_WINDOW - self._credit))
            self._credit = CONNECTION_WINDOW

    def widen_window(self, stream: Stream) -> None:
        """Widen the window of a stream whose body is being read."""
        if stream.credit < STREAM_WINDOW // 2 and not stream.discarding:
            self._out.pieces.append(window_frame(stream.id, STREAM_WINDOW - stream.credit))
            stream.credit = STREAM_WINDOW

    def keep(self, stream: Stream, payload: bytes) -> None:
        """Append a piece to a body."""
        stream.body.append(payload)
        self.hold(stream, len(payload) + PIECE_BYTES)

    def take(self, stream: Stream) -> bytes:
        """Return the whole body. It counts as held until the request is answered."""
        body, stream.body = b"".join(stream.body), []
        return body

    def discard(self, stream: Stream) -> None:
        """Drop the received part of a body, and all that is still to come."""
        stream.discarding = True
        self.hold(stream, -sum(len(piece) + PIECE_BYTES for piece in stream.body))
        stream.body = []
