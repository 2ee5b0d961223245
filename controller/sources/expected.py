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
UNSURE_PATIENCE: Final = 20.0
"""Seconds for a commit that the source may never show, such as a tag outside of its range."""
_FIRST: Final = 0.25
_GROWTH: Final = 2.0
_UNSURE_GROWTH: Final = 4.0
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

    def waits(self, key: ObjectKey, now: datetime) -> bool:
        """Whether the source is still to show a commit. One that cannot even be opened is not waited for without end."""
        wanted = self._wanted.get(key)
        if wanted is not None and _age(wanted, now) > PATIENCE:
            del self._wanted[key]
        return key in self._wanted

    def next_look(
        self, key: ObjectKey, revision: Revision | None, now: datetime, *, sure: bool = True
    ) -> float | None:
        """Seconds until the source is worth another look for the commit's sake; None when it was seen, or given up.

        `sure`: False where the source may have no use for what was pushed, as one that follows a range of versions.
        """
        wanted = self._wanted.get(key)
        if wanted is None:
            return None
        seen = revision is not None and revision.digest.partition(":")[2] == wanted.commit
        if seen or _age(wanted, now) > (PATIENCE if sure else UNSURE_PATIENCE):
            del self._wanted[key]
            return None
        wanted.looks += 1
        if not sure:
            return min(UNSURE_PATIENCE, _FIRST * _UNSURE_GROWTH ** (wanted.looks - 1))
        return min(_MOST, _FIRST * _GROWTH ** (wanted.looks - 1))


def _age(wanted: _Wanted, now: datetime) -> float:
    return (now - wanted.since).total_seconds()
