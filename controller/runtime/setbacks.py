"""Why a step could not be done, told apart by what happens next.

Setback
├── Stalled    a human must change something first
├── Waiting    something is expected to happen; nothing is wrong yet
└── Failed     worth another try, with backoff
"""

from __future__ import annotations


class Setback(Exception):
    """A step could not be done; `reason` is CamelCase and stable, `message` is for people and holds no
    secret.
    """

    def __init__(self, reason: str, message: str, *, delay: float | None = None) -> None:
        """`delay`: seconds to the next look, for what may be put right where nobody tells us of it."""
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.delay = delay


class Stalled(Setback):
    """Trying again changes nothing until a human does."""


class Waiting(Setback):
    """What is missing is expected to come by itself."""


class Failed(Setback):
    """An outside party failed; trying again may help."""
