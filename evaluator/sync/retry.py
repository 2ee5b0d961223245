"""How long to wait before trying again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST: Final = 0.2
CAP: Final = 10.0
"""Seconds."""


class Backoff:
    """Pauses that double from FIRST to CAP, each shortened at random by up to half to spread retries."""

    def __init__(self, random: Callable[[], float]) -> None:
        """`random` returns numbers from 0 to 1."""
        self._random = random
        self._next = FIRST

    def pause(self) -> float:
        """Seconds until the next try."""
        pause = self._next * (1 - self._random() / 2)
        self._next = min(CAP, self._next * 2)
        return pause

    def reset(self) -> None:
        """It worked: the next pause is short again."""
        self._next = FIRST
