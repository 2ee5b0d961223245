"""Limits frames that cost a peer little: frames without work, resets, pings.

Pings: as grpc-go enforces it (https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.http.h2.frames import ConnectionFault, ErrorCode

if TYPE_CHECKING:
    from evaluator.http.h2.outbox import Outbox
    from evaluator.http.h2.streams import Streams
    from evaluator.http.server.limits import Limits

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

    def __init__(self, limits: Limits, out: Outbox, streams: Streams) -> None:
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
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many resets")

    def count_refusal(self, *, early: bool) -> None:
        """Count a refused stream; `early`: the peer did not know our settings, so there may be many."""
        if not early:
            self.reset()
            return
        self._early += 1
        if self._early > MOST_EARLY:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many streams")

    def idle(self) -> None:
        """Count a frame without work, such as WINDOW_UPDATE or tiny DATA. The allowance grows with frames
        sent to the peer, and by one per open stream: gRPC's clients widen its window as they open it.
        """
        sent = self._out.frames
        self._tokens = min(self._tokens + EARNED * (sent - self._seen), MOST_EARNED) - 1
        self._seen = sent
        if self._tokens + len(self._streams.open) < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many idle frames")

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
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
