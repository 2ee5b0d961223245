"""Journeys: when a revision was found, stored, applied and served. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagset
from controller.api.flagset import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.objects.artifact import SourceStatus
from controller.api.objects.conditions import PROPAGATED, TRUE, UNKNOWN
from controller.api.objects.meta import precise_timestamp
from controller.api.objects.provenance import AUTHOR, COMMITTED_AT, SUBJECT
from controller.api.receipt import OBSERVED_AT
from controller.notifications import messages

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey, Resource
    from controller.api.provider import Message
    from controller.notifications.reporting.choosing import Alert
    from controller.runtime.objects.cache import Cache, Change

STORED_AT: Final = "flagstaff.dev/stored-at"
"""Metadata key for the time at which the artifact was stored, in the format of OBSERVED_AT."""
APPLIED_AT: Final = "flagstaff.dev/applied-at"
SERVED_AT: Final = "flagstaff.dev/served-at"
SERVED: Final = "flagstaff.dev/served"
"""`n/n`; absent where there is no subscriber."""


@dataclass(slots=True)
class Moments:
    """Times at which contents of objects were first seen, since a status has only whole seconds."""

    _seen: LRUCache[ObjectKey, tuple[str, datetime]] = field(default_factory=lambda: LRUCache(4_096))

    def note(self, change: Change, now: datetime) -> None:
        """Record the time at which an object's content changed."""
        before, after = change.before, change.after
        if before is None or after is None:
            return
        found = status_of(after).content[1]
        if found and found != status_of(before).content[1]:
            self._seen[after.key] = (found, now)

    def of(self, thing: Resource, other: datetime) -> datetime:
        """Return when the object's content was first seen; if unknown, `other`, which has whole seconds."""
        known, moment = self._seen.get(thing.key, ("", other))
        return moment if known == status_of(thing).content[1] else other


def journey_of(thing: Resource, objects: Cache, moments: Moments, now: datetime) -> dict[str, str]:
    """Return metadata for a flag set that all subscribers serve; empty while they do not."""
    if thing.key.kind != flagset.KIND:
        return {}
    status = FlagSetStatus.of(thing)
    history, propagated = status.history, status.condition(PROPAGATED)
    served_by_all = status.is_ready and propagated.status in {TRUE, UNKNOWN}
    # A revision that left all flags as they were had nothing to deliver.
    same = len(history) > 1 and history[0].digest == history[1].digest
    if not served_by_all or not history or same:
        return {}
    entry, place = history[0], flagset.source_key(thing)
    source = None if place is None else objects.get(place)
    artifact = SourceStatus.of(source).artifact
    if source is None or artifact is None or not artifact.revision == status.content[0] == entry.revision:
        return {}
    try:
        updated = artifact.last_update_time
        observed = _read(artifact.metadata.get(OBSERVED_AT) or updated)
        stored = max(observed, moments.of(source, _read(updated)))
        done = moments.of(thing, _read(entry.applied_at or ""))
        applied = max(stored, done)
        since = _read(propagated.since)
        # A status has whole seconds: a time in this or the last second counts as now.
        served = max(applied, now if now - since < timedelta(seconds=2) else since)
    except ValueError:
        return {}
    if now - done > timedelta(minutes=15):
        # An evaluator that serves it only now joined late.
        return {}
    copied = {AUTHOR: entry.author, SUBJECT: entry.subject, COMMITTED_AT: entry.committed_at}
    metadata = {key: text for key, text in copied.items() if text}
    if propagated.status == TRUE:
        metadata |= {SERVED: status.served or "", SERVED_AT: precise_timestamp(served)}
    times = {OBSERVED_AT: observed, STORED_AT: stored, APPLIED_AT: applied}
    return metadata | {name: precise_timestamp(moment) for name, moment in times.items()}


def message_of(thing: Resource, alert: Alert, journey: dict[str, str], now: datetime) -> Message:
    """Return the message of a journey; its key depends only on the revision, not on later subscribers."""
    status = status_of(thing)
    identity, words = f"{status.content} journey", status.condition(PROPAGATED).message
    found = messages.of_state(thing, alert, identity, now, reason=PROPAGATED, message=words)
    return found.model_copy(update={"metadata": found.metadata | journey})


def _read(text: str) -> datetime:
    """Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment
