"""The sending half of an HTTP/2 connection: sends frames as windows allow, and queues the others."""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from evaluator.http.h2.frames import (
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MAX_WINDOW,
    ConnectionFault,
    ErrorCode,
)

if TYPE_CHECKING:
    from evaluator.http.h2.stream_state import Stream

_SHRINK_TABLE = b"\x20"
"""HPACK's dynamic table size update to 0 (RFC 7541 section 6.3)."""

_SHARED_FROM: Final = 1024
_SHARED_TO: Final = 65_541
"""Bytes between which the frame of a message is kept: fewer cost little to copy, more take memory."""
_KEPT: Final = 8
"""Frames that are kept."""

_pack = HEAD.pack


@lru_cache(maxsize=_KEPT)
def data_frame(stream_id: int, chunk: bytes) -> bytes:
    """Return a DATA frame. The newest are kept: of a message to many peers, the stream has the same number on
    nearly all connections, so that they are sent the same bytes.
    """
    return _pack(len(chunk) << 8 | DATA, 0, stream_id) + chunk


class Outbox:
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
            self.pieces += (_pack(size << 8 | HEADERS, flags | END_HEADERS, stream_id), block)
            return
        for start in range(0, size, most):
            part = block[start : start + most]
            kind = CONTINUATION if start else HEADERS
            flags = (0 if start else flags) | (END_HEADERS if start + most >= size else 0)
            self.pieces += (_pack(len(part) << 8 | kind, flags, stream_id), part)

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
        self.pieces += (
            _pack(len(block) << 8 | HEADERS, END_HEADERS, stream.id),
            block,
            _pack(size << 8, 0, stream.id),
            body,
            _pack(len(trailers) << 8 | HEADERS, END_HEADERS | END_STREAM, stream.id),
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
            self.pieces += (_pack(size << 8 | DATA, END_STREAM if last else 0, stream.id), chunk)
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
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "connection window")
        flushed = []
        while self._starved and self.window > 0:
            _, stream = self._starved.popitem(last=False)
            if self.flush(stream):
                flushed.append(stream)
        return flushed
