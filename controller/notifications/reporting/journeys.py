"""Journeys: when a revision was found, stored, applied and served. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagset
from controller.api.conditions import PROPAGATED, READY, TRUE, UNKNOWN, find
from controller.api.provenance import AUTHOR, COMMITTED_AT, SUBJECT
from controller.api.receipt import OBSERVED_AT
from controller.notifications import messages
from controller.runtime.events import content

if TYPE_CHECKING:
    from controller.api.meta import ObjectKey, Resource
    from controller.api.provider import Message
    from controller.notifications.reporting.choosing import Alert
    from controller.runtime.objects.cache import Cache, Change

STORED_AT: Final = "flagstaff.dev/stored-at"
"""Of a message's metadata, as OBSERVED_AT: RFC 3339, in UTC, in milliseconds."""
APPLIED_AT: Final = "flagstaff.dev/applied-at"
SERVED_AT: Final = "flagstaff.dev/served-at"
SERVED: Final = "flagstaff.dev/served"
"""`n/n`; absent where there is no subscriber."""
_COPIED: Final = {"author": AUTHOR, "subject": SUBJECT, "committedAt": COMMITTED_AT}


@dataclass(slots=True)
class Moments:
    """Times at which contents of objects were first seen, since a status has only whole seconds."""

    _seen: LRUCache[ObjectKey, tuple[str, datetime]] = field(default_factory=lambda: LRUCache(4_096))

    def note(self, change: Change, now: datetime) -> None:
        """Record the time at which an object's content changed."""
        before, after = change.before, change.after
        if before is None or after is None:
            return
        found = content(after.status)[1]
        if found and found != content(before.status)[1]:
            self._seen[after.key] = (found, now)

    def of(self, thing: Resource, other: datetime) -> datetime:
        """Return when the object's content was first seen; if unknown, `other`, which has whole seconds."""
        known, moment = self._seen.get(thing.key, ("", other))
        return moment if known == content(thing.status)[1] else other


def journey_of(thing: Resource, objects: Cache, moments: Moments, now: datetime) -> dict[str, str]:
    """Return metadata for a flag set that all subscribers serve; empty while they do not."""
    history = thing.status.get("history") or ()
    ready, propagated = (find(thing.status, each) or {} for each in (READY, PROPAGATED))
    served_by_all = ready.get("status") == TRUE and propagated.get("status") in {TRUE, UNKNOWN}
    if thing.key.kind != flagset.KIND or not served_by_all or not history:
        return {}
    if len(history) > 1 and history[0].get("digest") == history[1].get("digest"):
        # The revision changed no flag: nothing was delivered.
        return {}
    entry, place = history[0], flagset.source_key(thing)
    source = None if place is None else objects.get(place)
    artifact = {} if source is None else source.status.get("artifact") or {}
    found = entry.get("revision")
    if source is None or not found or not (artifact.get("revision") == content(thing.status)[0] == found):
        return {}
    try:
        observed = _read((artifact.get("metadata") or {}).get(OBSERVED_AT) or artifact.get("lastUpdateTime"))
        stored = max(observed, moments.of(source, _read(artifact.get("lastUpdateTime"))))
        done = moments.of(thing, _read(entry.get("appliedAt")))
        applied = max(stored, done)
        since = _read(propagated.get("lastTransitionTime"))
        # A status has whole seconds: a time in this or the last second counts as now.
        served = max(applied, now if now - since < timedelta(seconds=2) else since)
    except (TypeError, ValueError):
        return {}
    if now - done > timedelta(minutes=15):
        # An evaluator that serves it only now joined late.
        return {}
    metadata = {key: str(entry[name]) for name, key in _COPIED.items() if entry.get(name)}
    if propagated.get("status") == TRUE:
        metadata |= {SERVED: str(thing.status.get("served") or ""), SERVED_AT: _written(served)}
    times = {OBSERVED_AT: observed, STORED_AT: stored, APPLIED_AT: applied}
    return metadata | {name: _written(moment) for name, moment in times.items()}


def message_of(thing: Resource, alert: Alert, journey: dict[str, str], now: datetime) -> Message:
    """Return the message of a journey; its key depends only on the revision, not on later subscribers."""
    words = str((find(thing.status, PROPAGATED) or {}).get("message") or "")
    identity = f"{content(thing.status)} journey"
    found = messages.of_state(thing, alert, identity, now, reason=PROPAGATED, message=words)
    return found.model_copy(update={"metadata": found.metadata | journey})


def _read(text: object) -> datetime:
    """Raises TypeError, ValueError."""
    moment = datetime.fromisoformat(str(text))
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
