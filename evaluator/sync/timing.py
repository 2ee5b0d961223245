"""How long sources wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceTiming:
    """All in seconds."""

    poll: float = 1.0
    """Between polls of a file: inotify does not report writes of other machines to a shared file system."""
    longest_writing: float = 5.0
    """After which a file that still changes is reported as a fault."""
    keepalive: float = 40.0
    """Of silence before a ping to a gRPC peer: flagd accepts one every 30 s."""
    ping_timeout: float = 10.0
    """Within which a peer must answer a ping."""
    call: float = 3.0
    """Within which a peer must answer a unary call."""
    confirm: float = 10.0
    """Of silence after which the peer is called: an answer shows that nothing changed."""
    silence: float = 1.0
    """After which a peer that accepted the stream and sends no flags is asked for the reason."""
    proven: float = 1.0
    """Of answering after which a source counts as healthy: its retry pause is reset."""


DEFAULT_TIMING = SourceTiming()
