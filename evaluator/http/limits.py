"""Limits on what clients may use of a port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one port; a client that exceeds one gets the error of its protocol."""

    body_bytes: int = 1_000_000
    """Most bytes of a body or message (413, RESOURCE_EXHAUSTED); 0: no limit."""
    header_bytes: int = 65_536
    """Most bytes of a decoded header block (431, GOAWAY(ENHANCE_YOUR_CALM)). Must be positive."""
    streams_per_connection: int = 250
    connections: int = 20_000
    connections_per_host: int = 10_000
    """Most connections from one IP address, which a node or mesh may share. Unix sockets do not count."""
    buffered_bytes: int = 16_777_216
    """Most bytes in memory for all connections together: requests until they are answered, and answers that
    are not read within a second. Messages of streams have limits of their own and do not count. Beyond it, of
    the address that uses most the connection that uses most is ended: 429, or GOAWAY(ENHANCE_YOUR_CALM).
    """
    header_seconds: float = 3.0
    """Most seconds from the first byte of a header block to its last."""
    body_seconds: float = 5.0
    """Most seconds from the end of a header block to the end of its body."""
    idle_seconds: float = 300.0
    """Seconds after which a connection without an open stream or request is closed."""
    resets_per_second: int = 100
    """Most RST_STREAM frames, and most frames without work (see `h2.guard`) beyond those that sent frames
    allow; beyond, GOAWAY(ENHANCE_YOUR_CALM).
    """
    ping_seconds: float = 0.0
    """Least seconds between a client's pings; a third that comes too early gets GOAWAY(ENHANCE_YOUR_CALM)."""
    pings_without_stream: bool = True
    write_buffer_bytes: int = 1_048_576
    """Beyond so many unread bytes, `body_seconds` limits a client that reads nothing."""


MANAGEMENT: Final = Limits(
    body_bytes=65_536,
    streams_per_connection=32,
    connections=1_000,
    connections_per_host=500,
    buffered_bytes=8_388_608,
)
"""Limits of ports for health checks and metrics, which have few clients."""
