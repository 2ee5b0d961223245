"""How often a peer may ping, as grpc-go enforces it (https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.http.frames import ConnectionFault, ErrorCode

if TYPE_CHECKING:
    from evaluator.http.routes import Limits

MOST_STRIKES: Final = 2
"""Early pings in a row that are forgiven; whatever is sent to the peer begins the count anew."""
SLACK: Final = 0.9
"""Of the least time: a client that pings exactly as often as it may is not always heard exactly as often."""
WITHOUT_STREAM_SECONDS: Final = 7_200.0
"""The least time between pings without a stream, where those are not allowed."""


class PingLimit:
    """Counts the early pings of one connection."""

    __slots__ = ("_always", "_last", "_least", "_strikes", "spoke")

    def __init__(self, limits: Limits) -> None:
        self.spoke = False
        """Something was sent since the last ping."""
        self._least = limits.ping_seconds
        self._always = limits.pings_without_stream
        self._last: float | None = None
        self._strikes = 0

    def came(self, now: float, *, streams: bool) -> None:
        """A ping at `now`, on a connection with or without `streams`. Raises ConnectionFault for one too many."""
        last, self._last = self._last, now
        spoke, self.spoke = self.spoke, False
        if spoke or last is None:
            self._strikes = 0
            return
        least = self._least if streams or self._always else WITHOUT_STREAM_SECONDS
        if now - last < least * SLACK:
            self._strikes += 1
            if self._strikes > MOST_STRIKES:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
