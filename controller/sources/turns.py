"""How new what a source is told must be: whoever asks for a look sees what is there by then. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from controller.api.meta import REQUESTED_AT
from controller.sources.listings import SHARED, Look

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey, Resource


@dataclass(slots=True)
class Turns:
    """When each source's own turn comes; a look before that is one that somebody asked for."""

    _due: dict[ObjectKey, datetime] = field(default_factory=dict)

    def look(self, resource: Resource, now: datetime) -> Look:
        """What a look at `now` may be told from what was listed before."""
        due = self._due.pop(resource.key, None)
        asked = resource.annotations.get(REQUESTED_AT)
        before = resource.status.get("observedGeneration")
        early = due is not None and now < due
        since = now
        if before in {None, -1}:
            # Many are made at once: what was listed after one was made is news enough for it.
            since = min(now, _made(resource) or now)
        elif (
            not early
            and before == resource.generation
            and asked in {None, resource.status.get("lastHandledReconcileAt")}
        ):
            return Look(now, now - SHARED, in_turn=True)
        return Look(now, since)

    def next(self, key: ObjectKey, due: datetime) -> None:
        """The source is looked at again at `due`, if nobody asks before."""
        self._due[key] = due

    def forget(self, key: ObjectKey) -> None:
        """The source is gone."""
        self._due.pop(key, None)


def _made(resource: Resource) -> datetime | None:
    """When the object was made, at the latest: the API server tells whole seconds."""
    try:
        made = datetime.fromisoformat(resource.created)
    except ValueError:
        return None
    return made + timedelta(seconds=1) if made.tzinfo is not None else None
