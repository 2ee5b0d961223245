"""Determines when sources are polled, and how recent the answer must be. A requested reconcile sees the state
since the request; for a push that was reported and not seen yet a source is polled soon, for a limited time.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from controller.api.meta import REQUESTED_AT, ObjectKey, Resource
from controller.api.status import Status
from evaluator.host.times import parse_time

SHARED: Final = timedelta(seconds=1)
"""Seconds by which a shared answer may be old for a scheduled reconcile."""
PATIENCE: Final = 60.0
"""Seconds; the replicas of a Git server catch up within less."""
UNSURE_PATIENCE: Final = 20.0
"""Seconds for a push that the source may never show, such as a tag outside of its range."""
_FIRST: Final = 0.25
_GROWTH: Final = 2.0
_UNSURE_GROWTH: Final = 4.0
_MOST: Final = 5.0


@dataclass(frozen=True, slots=True)
class Freshness:
    """The time of a reconcile, and how recent the answer must be. Both times are aware."""

    now: datetime
    since: datetime
    """An answer that describes an earlier state is not good enough."""
    scheduled: bool = False
    """It was not requested: it may also wait for an answer that another source requested earlier."""


@dataclass(slots=True)
class PollSchedule:
    """The times at which sources are due; an earlier reconcile was requested."""

    _due: dict[ObjectKey, datetime] = field(default_factory=dict)

    def freshness(self, resource: Resource, now: datetime) -> Freshness:
        """Return how recent the answer to a reconcile at `now` must be."""
        due = self._due.pop(resource.key, None)
        asked = resource.annotations.get(REQUESTED_AT)
        status = Status.of(resource)
        early = due is not None and now < due
        since = now
        if status.observed_generation == -1:
            # Many are created at once: for each, an answer from after its creation is recent enough.
            since = min(now, _creation_time(resource) or now)
        elif (
            not early
            and status.observed_generation == resource.generation
            and asked in {None, status.last_handled_reconcile_at}
        ):
            return Freshness(now, now - SHARED, scheduled=True)
        return Freshness(now, since)

    def set_due(self, key: ObjectKey, due: datetime) -> None:
        """Schedule the next reconcile for `due`; a requested one may come before."""
        self._due[key] = due

    def forget(self, key: ObjectKey) -> None:
        """Drop a deleted source."""
        self._due.pop(key, None)


def _creation_time(resource: Resource) -> datetime | None:
    """The latest time at which the object can have been created: the API server gives whole seconds."""
    created = parse_time(resource.created)
    return None if created is None else created + timedelta(seconds=1)


@dataclass(slots=True)
class _Push:
    digits: str
    since: datetime
    polls: int = 0


@dataclass(slots=True)
class PendingPushes:
    """By source, the newest push of what it follows that was not seen yet."""

    _pushes: dict[ObjectKey, _Push] = field(default_factory=dict)

    def expect(self, key: ObjectKey, digits: str, now: datetime) -> None:
        """Note a reported push; `digits` are the hexadecimal digits of its revision's digest."""
        self._pushes[key] = _Push(digits.lower(), now)

    def forget(self, key: ObjectKey) -> None:
        """Drop a deleted source."""
        self._pushes.pop(key, None)

    def is_waiting(self, key: ObjectKey, now: datetime) -> bool:
        """Whether a push is still to appear. Ends after `PATIENCE`, even if the source cannot be opened."""
        pushed = self._pushes.get(key)
        if pushed is not None and _age(pushed, now) > PATIENCE:
            del self._pushes[key]
        return key in self._pushes

    def seconds_to_retry(
        self, key: ObjectKey, digits: str, now: datetime, *, sure: bool = True
    ) -> float | None:
        """Return the seconds until the source must be polled again for a push, or None. `digits`: the
        hexadecimal digits of the revision's digest, empty if it is unknown; `sure`: the source must show it.
        """
        pushed = self._pushes.get(key)
        if pushed is None:
            return None
        seen = digits == pushed.digits
        if seen or _age(pushed, now) > (PATIENCE if sure else UNSURE_PATIENCE):
            del self._pushes[key]
            return None
        pushed.polls += 1
        if not sure:
            return min(UNSURE_PATIENCE, _FIRST * _UNSURE_GROWTH ** (pushed.polls - 1))
        return min(_MOST, _FIRST * _GROWTH ** (pushed.polls - 1))


def _age(pushed: _Push, now: datetime) -> float:
    # Where the clock was set back, it is unknown: taken for old.
    return abs((now - pushed.since).total_seconds())
