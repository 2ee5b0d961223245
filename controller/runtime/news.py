"""What is said about an object, once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class News:
    """One Event: something that happened."""

    reason: str
    """CamelCase and stable."""
    message: str
    """Without times and counters: the same thing again is counted up, not said anew."""
    warning: bool = False
