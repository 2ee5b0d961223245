"""The wall clock: the one place of the controller that reads it. All else takes the time as an argument."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - see the module


def unix_time() -> float:
    """Seconds since 1970."""
    return time.time()  # noqa: TID251
