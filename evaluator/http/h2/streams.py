"""The streams of one HTTP/2 connection: open ones, those recently closed, and incoming bodies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evaluator.http.h2.frames import ConnectionFault, ErrorCode, reset_frame, window_frame
from evaluator.http.h2.headers.fields import UNDECLARED

if TYPE_CHECKING:
    from evaluator.http.h2.headers.hpack import Block
    from evaluator.http.h2.outbox import Outbox

STREAM_WINDOW = 262_144
"""DATA bytes that a peer may send on a stream before it hears of us again."""
CONNECTION_WINDOW = 1_048_576
PIECE_BYTES = 64
"""About how many bytes a piece of a body takes beside its own."""
_REMEMBERED = 512


class Stream:
    """One open stream, both directions."""

    __slots__ = (
        "block", "body", "credit", "declared", "discarding", "ended", "ending", "held", "id", "queue",
        "received", "trailers", "window",
    )  # fmt: skip

    def __init__(self, stream_id: int, block: Block, window: int) -> None:
        self.id = stream_id
        self.block = block
        self.declared = UNDECLARED
        """Content length, or fields.UNDECLARED."""
        self.body: list[bytes] = []
        """As it came: growing one piece would leave holes in memory, and thousands do."""
        self.received = 0
        self.held = block.size
        """About how many bytes it makes us keep until it ends: its request, and an answer that waits."""
        self.credit = STREAM_WINDOW
        """Bytes of DATA that the peer may still send."""
        self.ended = False
        """The peer has ended its side."""
        self.discarding = False
        self.window = window
        """Bytes of DATA that we may still send."""
        self.queue: deque[memoryview] | None = None
        """DATA that the windows forbade; made when first needed."""
        self.ending = False
        """Our side is half-closed; data may still be queued."""
        self.trailers: bytes | None = None


class Streams:
    """All streams of a connection."""

    __slots__ = (
        "_credit",
        "_ended",
        "_out",
        "_reset",
        "held",
        "highest",
        "open",
        "processed",
    )

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.open: dict[int, Stream] = {}
        self.highest = 0
        """The highest id that the peer has used."""
        self.processed = 0
        """The highest id that we did not refuse."""
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)
        self._reset: dict[int, None] = {}
        """Ended by our RST_STREAM: frames that crossed it are to be ignored."""
        self._credit = CONNECTION_WINDOW
        """Bytes of DATA that the peer may still send on all streams."""
        self.held = 0
        """What all streams that are open hold."""

    # ------------------------------------------------------------------ lives

    def begin(self, stream_id: int, block: Block, window: int) -> Stream:
        """Open a stream; `window`: bytes of DATA that we may send on it."""
        stream = self.open[stream_id] = Stream(stream_id, block, window)
        self.held += stream.held
        return stream

    def hold(self, stream: Stream, size: int) -> None:
        """An open stream makes us keep so many bytes more, or fewer."""
        stream.held += size
        self.held += size

    def clear(self) -> None:
        """Forget all streams; the connection is over."""
        for stream in tuple(self.open.values()):
            self.drop(stream)

    def sent(self, stream: Stream) -> None:
        """Our side is all sent: the stream is over, by RST_STREAM(NO_ERROR) if the peer is still sending."""
        if stream.ended:
            del self.open[stream.id]
            self.held -= stream.held
            self.end(stream.id)
        else:
            self.reset(stream.id, ErrorCode.NO_ERROR)

    def drop(self, stream: Stream) -> None:
        """Forget a stream and all that it keeps."""
        del self.open[stream.id]
        self.held -= stream.held
        self._out.forget(stream)

    def reset(self, stream_id: int, error: int) -> None:
        """RST_STREAM, whether the stream is open or not."""
        stream = self.open.get(stream_id)
        if stream is not None:
            self.drop(stream)
        self._out.pieces.append(reset_frame(stream_id, error))
        self._reset[stream_id] = None
        if len(self._reset) > _REMEMBERED:
            del self._reset[next(iter(self._reset))]

    def end(self, stream_id: int) -> None:
        """Remember that the peer has ended a stream that is closed."""
        self._ended.append(stream_id)

    def require_known(self, stream_id: int) -> None:
        """ConnectionFault unless the peer has used this id, open or closed."""
        if stream_id > self.highest or not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "idle stream")

    def ignored(self, stream_id: int) -> bool:
        """Whether to ignore what comes on this closed stream; ConnectionFault if the peer had ended it."""
        if stream_id in self._reset:
            return True
        if stream_id in self._ended:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "stream was ended")
        return False

    # ------------------------------------------------------------------ bodies

    def spend(self, size: int) -> None:
        """DATA has come on any stream. It is credited before the window ends; bodies have own bounds."""
        self._credit -= size
        if self._credit < CONNECTION_WINDOW // 2:
            self._out.pieces.append(window_frame(0, CONNECTION_WINDOW - self._credit))
            self._credit = CONNECTION_WINDOW

    def renew(self, stream: Stream) -> None:
        """Let the peer send more on a stream that takes its body."""
        if stream.credit < STREAM_WINDOW // 2 and not stream.discarding:
            self._out.pieces.append(window_frame(stream.id, STREAM_WINDOW - stream.credit))
            stream.credit = STREAM_WINDOW

    def keep(self, stream: Stream, payload: bytes) -> None:
        """Keep a piece of a body."""
        stream.body.append(payload)
        self.hold(stream, len(payload) + PIECE_BYTES)

    def take(self, stream: Stream) -> bytes:
        """The whole body; it counts as held until the request is answered."""
        body, stream.body = b"".join(stream.body), []
        return body

    def discard(self, stream: Stream) -> None:
        """Keep nothing of a body, neither what came nor what comes."""
        stream.discarding = True
        self.hold(stream, -sum(len(piece) + PIECE_BYTES for piece in stream.body))
        stream.body = []
