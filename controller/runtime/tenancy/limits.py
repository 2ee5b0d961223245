"""The limits of each namespace. Counts of objects are limited by Kubernetes' ResourceQuota. Pure."""

from __future__ import annotations

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
