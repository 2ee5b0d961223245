"""The streams of one HTTP/2 connection: their state, what is sent on them, and limits of frames that cost a
peer little. Pure.

Frames that cost a peer little are those without work, resets and pings.

Pings: as grpc-go enforces it (https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from evaluator.http.h2_frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_WINDOW,
    ConnectionFault,
    Http2ErrorCode,
    frame,
    head,
    reset_frame,
    start_of_head,
    window_frame,
)
from evaluator.http.hpack import UNDECLARED, Block

if TYPE_CHECKING:
    from evaluator.http.limits import Limits


STREAM_WINDOW: Final = 262_144
"""Bytes of the flow-control window that a peer gets on each stream."""


class Stream:
    """One open stream: its request, and its response as far as it is queued."""

    __slots__ = (
        "block", "body", "credit", "declared", "discarding", "ended", "ending", "held", "id", "queue",
        "received", "trailers", "window",
    )  # fmt: skip

    def __init__(self, stream_id: int, block: Block, window: int) -> None:
        self.id = stream_id
        self.block = block
        self.declared = UNDECLARED
        """The request's content-length, or hpack.UNDECLARED."""
        self.body: list[bytes] = []
        """The pieces as they arrived: thousands of growing buffers would fragment the memory."""
        self.received = 0
        self.held = block.size
        """About how many bytes the request and a waiting response take in memory."""
        self.credit = STREAM_WINDOW
        """Bytes of DATA that the peer may still send."""
        self.ended = False
        """Whether the peer has sent END_STREAM."""
        self.discarding = False
        self.window = window
        """Bytes of DATA that we may still send."""
        self.queue: deque[memoryview] | None = None
        """DATA that waits for flow control; made when it is needed first."""
        self.ending = False
        """Whether the response is complete; its last DATA may still be queued."""
        self.trailers: bytes | None = None


_SHRINK_TABLE: Final = b"\x20"
"""HPACK's dynamic table size update to 0 (RFC 7541 section 6.3)."""

_SHARED_FROM: Final = 1024
_SHARED_TO: Final = 65_541
"""Bytes between which the frame of a message is kept: fewer cost little to copy, more take memory."""
_KEPT: Final = 8
"""Frames that are kept."""


@lru_cache(maxsize=_KEPT)
def data_frame(stream_id: int, chunk: bytes) -> bytes:
    """Return a DATA frame. The newest are kept: of a message to many peers, the stream has the same number on
    nearly all connections, so that they are sent the same bytes.
    """
    return frame(DATA, 0, stream_id, chunk)


class SendQueue:
    """Bytes to write, and the peer's limits on them."""

    __slots__ = (
        "_prefix",
        "_shrunk",
        "_starved",
        "frame_bytes",
        "frames",
        "pieces",
        "waiting_bytes",
        "window",
    )

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.window = DEFAULT_WINDOW
        self.frame_bytes = DEFAULT_FRAME_BYTES
        self.waiting_bytes = 0
        self.frames = 0
        """HEADERS and DATA frames sent so far."""
        self._starved: OrderedDict[int, Stream] = OrderedDict()
        """Streams that wait for the connection's window, in order."""
        self._prefix = b""
        self._shrunk = False

    def take(self) -> bytes:
        """Return all bytes to write now."""
        if not self.pieces:
            return b""
        # The only piece is sent as it is: a message to many peers is not copied for each.
        first = self.pieces[0]
        out = first if len(self.pieces) == 1 and isinstance(first, bytes) else b"".join(self.pieces)
        self.pieces.clear()
        return out

    def shrink_table(self) -> None:
        """Announce with the next header block that no dynamic table is used: the peer's is too small."""
        if not self._shrunk:
            self._shrunk = True
            self._prefix = _SHRINK_TABLE

    def send_headers(self, stream_id: int, block: bytes, end_stream: bool) -> None:
        """Send HEADERS, and CONTINUATION if the block is longer than a frame."""
        if self._prefix:
            block, self._prefix = self._prefix + block, b""
        self.frames += 1
        flags = END_STREAM if end_stream else 0
        size, most = len(block), self.frame_bytes
        if size <= most:
            self.pieces += (head(HEADERS, flags | END_HEADERS, stream_id, size), block)
            return
        for start in range(0, size, most):
            part = block[start : start + most]
            kind = CONTINUATION if start else HEADERS
            flags = (0 if start else flags) | (END_HEADERS if start + most >= size else 0)
            self.pieces += (head(kind, flags, stream_id, len(part)), part)

    def respond(self, stream: Stream, block: bytes, body: bytes, trailers: bytes | None) -> bool:
        """Send a complete response; return False while some of it is queued."""
        size, most = len(body), self.frame_bytes
        if (
            trailers is None
            or not 0 < size <= most
            or size > self.window
            or size > stream.window
            or len(block) > most
            or len(trailers) > most
            or self._prefix
            or stream.queue
        ):
            return self._respond_in_parts(stream, block, body, trailers)
        self.window -= size
        stream.window -= size
        stream.ending = True
        self.frames += 3
        stream_id = stream.id.to_bytes(4, "big")
        self.pieces += (
            start_of_head(HEADERS, END_HEADERS, len(block)),
            stream_id,
            block,
            start_of_head(DATA, 0, size),
            stream_id,
            body,
            start_of_head(HEADERS, END_HEADERS | END_STREAM, len(trailers)),
            stream_id,
            trailers,
        )
        return True

    def _respond_in_parts(self, stream: Stream, block: bytes, body: bytes, trailers: bytes | None) -> bool:
        if not body and trailers is None:
            stream.ending = True
            self.send_headers(stream.id, block, end_stream=True)
            return True
        self.send_headers(stream.id, block, end_stream=False)
        stream.ending = True
        stream.trailers = trailers
        return self.send_body(stream, body)

    def send_body(self, stream: Stream, chunk: bytes) -> bool:
        """Queue `chunk` and flush; return False while some of it is queued."""
        size = len(chunk)
        if (
            _SHARED_FROM <= size <= min(self.window, stream.window, self.frame_bytes, _SHARED_TO)
            and not stream.queue
            and not stream.ending
        ):
            self.window -= size
            stream.window -= size
            self.frames += 1
            self.pieces.append(data_frame(stream.id, chunk))
            return True
        if chunk or (stream.ending and stream.trailers is None):
            if stream.queue is None:
                stream.queue = deque()
            stream.queue.append(memoryview(chunk))
            self.waiting_bytes += len(chunk)
        return self.flush(stream)

    def flush(self, stream: Stream) -> bool:
        """Send what the windows allow; return whether nothing is queued on this stream."""
        queue = stream.queue
        while queue:
            chunk = queue[0]
            size, room = len(chunk), min(self.window, stream.window, self.frame_bytes)
            if size and room <= 0:
                if self.window <= 0:
                    self._starved[stream.id] = stream
                return False
            if size > room:
                queue[0], chunk, size = chunk[room:], chunk[:room], room
            else:
                queue.popleft()
            self.window -= size
            stream.window -= size
            self.waiting_bytes -= size
            self.frames += 1
            last = stream.ending and not queue and stream.trailers is None
            self.pieces += (head(DATA, END_STREAM if last else 0, stream.id, size), chunk)
        if stream.trailers is not None:
            self.send_headers(stream.id, stream.trailers, end_stream=True)
            stream.trailers = None
        return True

    def forget(self, stream: Stream) -> None:
        """Drop what is queued on a closed stream."""
        if stream.queue:
            self.waiting_bytes -= sum(map(len, stream.queue))
            stream.queue = None
            self._starved.pop(stream.id, None)

    def widen(self, increment: int) -> list[Stream]:
        """Widen the connection's window; return the streams on which nothing is queued any more."""
        self.window += increment
        if self.window > MAX_WINDOW:
            raise ConnectionFault(Http2ErrorCode.FLOW_CONTROL_ERROR, "connection window")
        flushed = []
        while self._starved and self.window > 0:
            _, stream = self._starved.popitem(last=False)
            if self.flush(stream):
                flushed.append(stream)
        return flushed


CONNECTION_WINDOW: Final = 1_048_576
PIECE_BYTES: Final = 64
"""About how many bytes of memory a piece of a body takes beside its content."""
_REMEMBERED: Final = 512


class Streams:
    """All streams of a connection."""

    __slots__ = ("_credit", "_ended", "_out", "_reset", "held", "highest", "open", "processed")

    def __init__(self, out: SendQueue) -> None:
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
            self.reset(stream.id, Http2ErrorCode.NO_ERROR)

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
            raise ConnectionFault(Http2ErrorCode.PROTOCOL_ERROR, "idle stream")

    def ignores(self, stream_id: int) -> bool:
        """Return whether frames on this closed stream are ignored; after END_STREAM raise ConnectionFault."""
        if stream_id in self._reset:
            return True
        if stream_id in self._ended:
            raise ConnectionFault(Http2ErrorCode.STREAM_CLOSED, "stream was ended")
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


EARNED: Final = 4
"""Idle frames that a peer may send for each frame sent to it: it widens two windows and may measure latency.
"""
MOST_EARNED: Final = 16_384
"""Most idle frames allowed at once for sent frames: as many may be in flight."""
MOST_EARLY: Final = 1_000
SHORT: Final = 256
"""Bytes below which a piece of a body or of a header block counts as idle."""
MOST_STRIKES: Final = 2
"""Tolerated early pings in a row; anything sent to the peer resets the count."""
SLACK: Final = 0.9
"""Least share of the time between pings that counts as enough: network delays vary."""
WITHOUT_STREAM_SECONDS: Final = 7_200.0
"""Least seconds between pings without a stream, if those are not allowed."""


class FloodGuard:
    """Counts costly frames of one connection. Methods raise ConnectionFault for too many."""

    __slots__ = (
        "_early",
        "_last_ping",
        "_limits",
        "_out",
        "_resets",
        "_seen",
        "_seen_by_ping",
        "_streams",
        "_strikes",
        "_tokens",
    )

    def __init__(self, limits: Limits, out: SendQueue, streams: Streams) -> None:
        self._limits = limits
        self._out = out
        self._streams = streams
        self._resets = 0
        self._early = 0
        """Refused streams from before the peer knew how many it may open."""
        self._tokens = limits.resets_per_second
        """Idle frames that the peer may still send."""
        self._seen = 0
        """Number of sent frames when tokens were last added."""
        self._last_ping: float | None = None
        self._seen_by_ping = 0
        self._strikes = 0

    def tick(self) -> None:
        """Begin another second."""
        self._resets = 0
        self._tokens = max(self._tokens, self._limits.resets_per_second)

    def reset(self) -> None:
        """Count a stream that the peer reset, or that we reset for the peer's error."""
        self._resets += 1
        if self._resets > self._limits.resets_per_second:
            raise ConnectionFault(Http2ErrorCode.ENHANCE_YOUR_CALM, "too many resets")

    def count_refusal(self, *, early: bool) -> None:
        """Count a refused stream; `early`: the peer did not know our settings, so there may be many."""
        if not early:
            self.reset()
            return
        self._early += 1
        if self._early > MOST_EARLY:
            raise ConnectionFault(Http2ErrorCode.ENHANCE_YOUR_CALM, "too many streams")

    def idle(self) -> None:
        """Count a frame without work, such as WINDOW_UPDATE or tiny DATA. The allowance grows with frames
        sent to the peer, and by one per open stream: gRPC's clients widen its window as they open it.
        """
        sent = self._out.frames
        self._tokens = min(self._tokens + EARNED * (sent - self._seen), MOST_EARNED) - 1
        self._seen = sent
        if self._tokens + len(self._streams.open) < 0:
            raise ConnectionFault(Http2ErrorCode.ENHANCE_YOUR_CALM, "too many idle frames")

    def ping(self, now: float, *, streams: bool) -> None:
        """Judge a ping at `now`, on a connection with or without open `streams`."""
        last, self._last_ping = self._last_ping, now
        sent, self._seen_by_ping = self._seen_by_ping != self._out.frames, self._out.frames
        if sent or last is None:
            self._strikes = 0
            return
        limits = self._limits
        least = limits.ping_seconds if streams or limits.pings_without_stream else WITHOUT_STREAM_SECONDS
        if now - last < least * SLACK:
            self._strikes += 1
            if self._strikes > MOST_STRIKES:
                raise ConnectionFault(Http2ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
