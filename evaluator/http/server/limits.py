"""What a peer may use of us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may use of us, on one port; a breach gets the protocol's error."""

    body_bytes: int = 1_000_000
    """Request body or message; 413 over HTTP, RESOURCE_EXHAUSTED over gRPC. 0: no limit."""
    header_bytes: int = 65_536
    """Decoded header block; 431 over HTTP/1.1, GOAWAY(ENHANCE_YOUR_CALM) over HTTP/2. Never 0."""
    streams_per_connection: int = 250
    connections: int = 20_000
    connections_per_host: int = 10_000
    """Of one address; a mesh or a node may stand behind it. Unix sockets have no address."""
    buffered_bytes: int = 16_777_216
    """Kept for all connections together: requests until they are answered, and answers that are not read
    within a second; messages of streams apart, which have bounds of their own. Beyond it the largest
    connection of the address that holds most is refused: 429, or GOAWAY(ENHANCE_YOUR_CALM).
    """
    header_seconds: float = 3.0
    """From a connection's first byte to a whole header block."""
    body_seconds: float = 5.0
    """From a header block to its whole body."""
    idle_seconds: float = 300.0
    """A connection without an open stream or request is closed after this."""
    resets_per_second: int = 100
    """RST_STREAM frames, and idle frames beyond what we send; over it GOAWAY(ENHANCE_YOUR_CALM)."""
    ping_seconds: float = 0.0
    """The least time between a peer's pings; after two that come early GOAWAY(ENHANCE_YOUR_CALM)."""
    pings_without_stream: bool = True
    write_buffer_bytes: int = 1_048_576
    """A connection whose peer reads nothing is closed once this much waits for it."""


MANAGEMENT: Final = Limits(
    body_bytes=65_536,
    streams_per_connection=32,
    connections=1_000,
    connections_per_host=500,
    buffered_bytes=8_388_608,
)
"""For health, metrics and the like, which few ask for."""
