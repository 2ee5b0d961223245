"""Commits that a push told of and that the source is still to show: looked for again soon, but not for ever. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import ObjectKey
    from controller.sources.source import Revision

PATIENCE: Final = 60.0
"""Seconds: a Git server's replicas follow its front within less."""
_FIRST: Final = 0.25
_MOST: Final = 5.0


@dataclass(slots=True)
class _Wanted:
    commit: str
    since: datetime
    looks: int = 0


@dataclass(slots=True)
class Expected:
    """By source, the newest commit that was pushed to what it follows."""

    _wanted: dict[ObjectKey, _Wanted] = field(default_factory=dict)

    def expect(self, key: ObjectKey, commit: str, now: datetime) -> None:
        """A push of `commit` (hexadecimal) was reported."""
        self._wanted[key] = _Wanted(commit.lower(), now)

    def forget(self, key: ObjectKey) -> None:
        """The source is gone."""
        self._wanted.pop(key, None)

    def waits(self, key: ObjectKey) -> bool:
        """Whether the source is still to show a commit."""
        return key in self._wanted

    def next_look(self, key: ObjectKey, revision: Revision | None, now: datetime) -> float | None:
        """Seconds until the source is worth another look for the commit's sake; None when it was seen, or given up."""
        wanted = self._wanted.get(key)
        if wanted is None:
            return None
        seen = revision is not None and revision.digest.partition(":")[2] == wanted.commit
        if seen or (now - wanted.since).total_seconds() > PATIENCE:
            del self._wanted[key]
            return None
        wanted.looks += 1
        return min(_MOST, _FIRST * 2.0 ** (wanted.looks - 1))
