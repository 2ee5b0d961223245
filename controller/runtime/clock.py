"""The wall clock: the one place of the controller that reads it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The time, in UTC. Everything else takes it as an argument."""
    return datetime.now(UTC)  # noqa: TID251 - see the module
