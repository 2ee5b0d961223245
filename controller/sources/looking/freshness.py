"""How recent an answer a look needs: a requested one sees the state since the request. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.api.meta import REQUESTED_AT

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey, Resource


SHARED: Final = timedelta(seconds=1)
"""How old a shared answer may be for a scheduled look."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """When a source is looked at, and how recent the answer must be. Both times are aware."""

    now: datetime
    since: datetime
    """An answer that describes an earlier state is not good enough."""
    scheduled: bool = False
    """The look was not requested: it may also wait for an answer that another source requested earlier."""


@dataclass(slots=True)
class LookSchedule:
    """When each source is due; an earlier look was requested."""

    _due: dict[ObjectKey, datetime] = field(default_factory=dict)

    def look(self, resource: Resource, now: datetime) -> Freshness:
        """How recent the answer to a look at `now` must be."""
        due = self._due.pop(resource.key, None)
        asked = resource.annotations.get(REQUESTED_AT)
        before = resource.status.get("observedGeneration")
        early = due is not None and now < due
        since = now
        if before in {None, -1}:
            # Many are created at once: for each, an answer from after its creation is recent enough.
            since = min(now, _made(resource) or now)
        elif (
            not early
            and before == resource.generation
            and asked in {None, resource.status.get("lastHandledReconcileAt")}
        ):
            return Freshness(now, now - SHARED, scheduled=True)
        return Freshness(now, since)

    def next(self, key: ObjectKey, due: datetime) -> None:
        """The source is looked at again at `due`, unless a look is requested before."""
        self._due[key] = due

    def forget(self, key: ObjectKey) -> None:
        """The source is gone."""
        self._due.pop(key, None)


def _made(resource: Resource) -> datetime | None:
    """The latest time at which the object can have been created: the API server gives whole seconds."""
    try:
        made = datetime.fromisoformat(resource.created)
    except ValueError:
        return None
    return made + timedelta(seconds=1) if made.tzinfo is not None else None
