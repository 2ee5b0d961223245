"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Returns `now`; each reading is `step` seconds after the one before."""

    def __init__(self, now: float = 0.0, *, step: float = 0.0) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now
