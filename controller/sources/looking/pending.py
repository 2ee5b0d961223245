"""Pushes that were reported and not seen yet: looked for soon, for a limited time. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import ObjectKey
    from controller.sources.provider import Revision

PATIENCE: Final = 60.0
"""Seconds; the replicas of a Git server catch up within less."""
UNSURE_PATIENCE: Final = 20.0
"""Seconds for a push that the source may never show, such as a tag outside of its range."""
_FIRST: Final = 0.25
_GROWTH: Final = 2.0
_UNSURE_GROWTH: Final = 4.0
_MOST: Final = 5.0


@dataclass(slots=True)
class _Push:
    digits: str
    since: datetime
    looks: int = 0


@dataclass(slots=True)
class PendingPushes:
    """By source, the newest push to what it follows."""

    _pushes: dict[ObjectKey, _Push] = field(default_factory=dict)

    def expect(self, key: ObjectKey, digits: str, now: datetime) -> None:
        """A push was reported; `digits` are the hexadecimal digits of its revision's digest."""
        self._pushes[key] = _Push(digits.lower(), now)

    def forget(self, key: ObjectKey) -> None:
        """The source is gone."""
        self._pushes.pop(key, None)

    def waits(self, key: ObjectKey, now: datetime) -> bool:
        """Whether a push is still to appear. Ends after `PATIENCE`, even if the source cannot be opened."""
        pushed = self._pushes.get(key)
        if pushed is not None and _age(pushed, now) > PATIENCE:
            del self._pushes[key]
        return key in self._pushes

    def next_look(
        self, key: ObjectKey, revision: Revision | None, now: datetime, *, sure: bool = True
    ) -> float | None:
        """Seconds until the next look for the pushed revision; None if it was seen or given up.

        `sure`: False if the source may never show what was pushed, as one that follows a range of versions.
        """
        pushed = self._pushes.get(key)
        if pushed is None:
            return None
        seen = revision is not None and revision.digest.partition(":")[2] == pushed.digits
        if seen or _age(pushed, now) > (PATIENCE if sure else UNSURE_PATIENCE):
            del self._pushes[key]
            return None
        pushed.looks += 1
        if not sure:
            return min(UNSURE_PATIENCE, _FIRST * _UNSURE_GROWTH ** (pushed.looks - 1))
        return min(_MOST, _FIRST * _GROWTH ** (pushed.looks - 1))


def _age(pushed: _Push, now: datetime) -> float:
    # Where the clock was set back, it is unknown: taken for old.
    return abs((now - pushed.since).total_seconds())
