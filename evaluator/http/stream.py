"""One open stream of an HTTP/2 connection: what its two halves know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.http.fields import UNDECLARED

if TYPE_CHECKING:
    from collections import deque

    from evaluator.http.routes import Headers


class Stream:
    """One open stream, both directions."""

    __slots__ = (
        "body",
        "credit",
        "declared",
        "discarding",
        "ended",
        "ending",
        "headers",
        "id",
        "queue",
        "received",
        "trailers",
        "window",
    )

    def __init__(self, stream_id: int, headers: Headers, credit: int, window: int) -> None:
        self.id = stream_id
        self.headers = headers
        self.declared = UNDECLARED
        """Content length, or fields.UNDECLARED."""
        self.body: bytes | bytearray = b""
        self.received = 0
        self.credit = credit
        """Bytes of DATA that the peer may still send."""
        self.ended = False
        """The peer has ended its side."""
        self.discarding = False
        self.window = window
        """Bytes of DATA that we may still send."""
        self.queue: deque[memoryview] | None = None
        """DATA that the windows forbade; made when first needed."""
        self.ending = False
        """We have said all that we will, though it may still be queued."""
        self.trailers: bytes | None = None
