"""Why a step could not be done, told apart by what happens next.

Setback
├── Stalled    a human must change something first
├── Waiting    something is expected to happen; nothing is wrong yet
└── Failed     worth another try, with backoff
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.conditions import Condition
    from controller.runtime.news import News


class Setback(Exception):
    """A step could not be done; `reason` is CamelCase and stable, `message` is for people and holds no
    secret.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        status: Mapping[str, Any] | None = None,
        details: tuple[Condition, ...] = (),
        news: tuple[News, ...] = (),
        requeue_after: float | None = None,
    ) -> None:
        """`status`, `details` and `news` are what came of it all the same; the rest of the object's status
        stays, None removes.

        `requeue_after`: seconds to the next look, for what may be put right where nobody tells us of it.
        """
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status: Mapping[str, Any] = status or {}
        self.details = details
        self.ended: tuple[str, ...] = ()
        """Types of detail conditions that hold no longer."""
        self.news = news
        self.requeue_after = requeue_after


class Stalled(Setback):
    """Trying again changes nothing until a human does."""


class Waiting(Setback):
    """What is missing is expected to come by itself."""


class Failed(Setback):
    """An outside party failed; trying again may help."""
