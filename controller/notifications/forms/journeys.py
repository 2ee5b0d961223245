"""A revision's way from the look that found it to the evaluators that serve it, as moments. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from controller.api import flagset
from controller.api.artifact import SourceStatus
from controller.api.conditions import PROPAGATED, TRUE, UNKNOWN
from controller.api.flagset import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.meta import precise_timestamp
from controller.api.provenance import AUTHOR, COMMITTED_AT, SUBJECT
from controller.api.receipt import OBSERVED_AT
from controller.notifications import messages

if TYPE_CHECKING:
    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import ObjectKey, Resource
    from controller.api.provider import Message
    from controller.runtime.objects.cache import Cache, Change

STORED_AT: Final = "flagstaff.dev/stored-at"
"""Of a message's metadata, as OBSERVED_AT: RFC 3339, in UTC, in milliseconds."""
APPLIED_AT: Final = "flagstaff.dev/applied-at"
SERVED_AT: Final = "flagstaff.dev/served-at"
SERVED: Final = "flagstaff.dev/served"
"""`n/n`; absent where there is no subscriber."""
_MOST: Final = 4_096
"""Objects of which is known when they changed."""
_ROLLOUT: Final = timedelta(minutes=15)
"""An evaluator that serves a revision later than this after it was applied joined late."""


@dataclass(slots=True)
class Moments:
    """When contents of objects were seen here first: a status has whole seconds."""

    _seen: LRUCache[ObjectKey, tuple[str, datetime]] = field(default_factory=lambda: LRUCache(_MOST))

    def note(self, change: Change, now: datetime) -> None:
        """Take note of a content that is another than before."""
        before, after = change.before, change.after
        if before is None or after is None:
            return
        found = status_of(after).content[1]
        if found and found != status_of(before).content[1]:
            self._seen[after.key] = (found, now)

    def of(self, thing: Resource, other: datetime) -> datetime:
        """When the object's content was seen first; `other`, of whole seconds, where that is not known."""
        known, moment = self._seen.get(thing.key, ("", other))
        return moment if known == status_of(thing).content[1] else other


def journey_of(thing: Resource, objects: Cache, moments: Moments, now: datetime) -> dict[str, str]:
    """The metadata of a message about a flag set whose revision all subscribers serve; empty while they do
    not, and where its times are not known.
    """
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
        served = max(applied, _precise(_read(propagated.since), now))
    except ValueError:
        return {}
    if now - done > _ROLLOUT:
        return {}
    copied = {AUTHOR: entry.author, SUBJECT: entry.subject, COMMITTED_AT: entry.committed_at}
    metadata = {key: text for key, text in copied.items() if text}
    if propagated.status == TRUE:
        metadata |= {SERVED: status.served or "", SERVED_AT: precise_timestamp(served)}
    times = {OBSERVED_AT: observed, STORED_AT: stored, APPLIED_AT: applied}
    return metadata | {name: precise_timestamp(moment) for name, moment in times.items()}


def message_of(
    thing: Resource, alert: Resource, spec: FlagAlertSpec, journey: dict[str, str], now: datetime
) -> Message:
    """The message of a journey; that of one revision has one key, however many serve it later."""
    status = status_of(thing)
    identity, words = f"{status.content} journey", status.condition(PROPAGATED).message
    found = messages.of_state(thing, alert, spec, identity, now, reason=PROPAGATED, message=words)
    return found.model_copy(update={"metadata": found.metadata | journey})


def _precise(moment: datetime, now: datetime) -> datetime:
    """`now` for what happened in this second or the one before."""
    return now if now - moment < timedelta(seconds=2) else moment


def _read(text: str) -> datetime:
    """Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return moment
