"""Requests of one HTTP/2 connection that wait to be answered, and since when: what a caller waits for
includes that.
"""

from __future__ import annotations

from collections import deque

from evaluator.http.h2.events import RequestReceived


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
