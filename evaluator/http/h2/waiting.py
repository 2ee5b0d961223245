"""Requests of one HTTP/2 connection that wait to be answered, and since when: what a caller waits for
includes that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evaluator.http.h2.events import RequestReceived
from evaluator.http.h2.streams import BODIES_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator


class Waiting(deque[RequestReceived]):
    """First come, first served."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[int, float] = {}
        """By stream, of those that were not answered when they came."""

    def stay(self, now: float) -> None:
        """They are left waiting. `now`: when the newest of them came."""
        for event in self:
            self.since.setdefault(event.stream_id, now)

    def clear(self) -> None:
        """Forget them all."""
        super().clear()
        self.since.clear()

    def excess(self) -> Iterator[int]:
        """Take the newest out until the others' bodies are within bounds; their streams."""
        kept = sum(len(event.body) for event in self)
        while kept > BODIES_BYTES:
            event = self.pop()
            self.since.pop(event.stream_id, None)
            kept -= len(event.body)
            yield event.stream_id
