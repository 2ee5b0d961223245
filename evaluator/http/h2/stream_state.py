"""One open stream of an HTTP/2 connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.http.hpack.header_fields import UNDECLARED

if TYPE_CHECKING:
    from collections import deque

    from evaluator.http.hpack.header_fields import Block

STREAM_WINDOW = 262_144
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
        """The request's content-length, or header_fields.UNDECLARED."""
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
