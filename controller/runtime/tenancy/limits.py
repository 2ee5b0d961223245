"""The limits of each namespace, and of a rate. Counts of objects are limited by Kubernetes' ResourceQuota.
Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """What each namespace may have; 0: no limit."""

    artifact_bytes: int = 0
    """Bytes of all artifacts together."""
    mirror_bytes: int = 0
    """Bytes of all mirrors of Git repositories together."""
    git_processes: int = 0
    """Git programs that run at the same time."""
    streams: int = 0
    """Open streams of its callers at one proxy."""
    receipts: int = 0
    """Receipts of its pods that one proxy keeps: one for each flag set that a pod serves."""


UNLIMITED: Final = NamespaceLimits()


@dataclass(slots=True)
class Pace:
    """A rate limit: a burst, then a steady rate. `now`: seconds of a monotonic clock."""

    burst: float = 20.0
    per_second: float = 2.0
    _used: float = 0.0
    _since: float = 0.0

    def wait(self, now: float, most: float = math.inf) -> float:
        """Reserve one action; return the seconds to wait before it may be done. Where these are more than
        `most`, nothing is reserved.
        """
        self._used = max(0.0, self._used - (now - self._since) * self.per_second)
        self._since = now
        seconds = max(0.0, (self._used + 1.0 - self.burst) / self.per_second)
        if seconds <= most:
            self._used += 1.0
        return seconds
