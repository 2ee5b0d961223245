"""The sink of Events for alerts: each waits in its provider's outbox, which the provider's status stores.

Accepting an Event only changes memory: the provider's reconciler writes the status, and only stored messages
are sent. Messages lost with a process are found again by comparing objects with what was reported of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from controller.api import flagalert, flaggrant, flagprovider
from controller.api.kinds import NAMESPACE, status_of
from controller.api.meta import ObjectKey, Resource, about
from controller.events.alert_selection import Alert, AlertSelection, split_subject
from controller.events.flag_set_progress import (
    CHANGE_REQUESTS,
    FOLLOWING_STATUS,
    followed_by_commits,
    sets_compared_with,
)
from controller.events.provider_outbox import ProviderOutbox
from controller.events.reporter import AlertReporter
from controller.runtime.shards import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime

    from controller.api.flagprovider import FlagProviderStatus
    from controller.runtime.cache import Cache, Change
    from controller.runtime.event import Event

log = logging.getLogger(__name__)

MOST_EARLY: Final = 1_000
"""Most Events that wait until their provider's outbox is read."""
UNDER_WAY: Final = timedelta(seconds=10)
"""Time for which a cached object may be older than its newest Event: the status is written later."""
WRITE_ALERT_LATER: Final = 5.0
"""Seconds from the write of a provider's status to that of its alerts, so that one covers many messages."""
_AT_A_STRETCH: Final = 100
"""Objects that are compared before other work has its turn."""


@dataclass(slots=True)
class _Slot:
    """The state of one provider while this replica leads."""

    box: ProviderOutbox | None = None
    """None: it was not read yet."""
    early: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EARLY))
    dropped: int = 0
    """Number of dropped early Events."""
    compared: object = None
    """The provider and its alerts as of the last comparison with all objects."""


class Outbox:
    """An EventSink of the leader: active between `begin` and `end`."""

    def __init__(
        self,
        objects: Cache,
        now: Callable[[], datetime],
        wake: Callable[[ObjectKey, float], None],
        shard: Shard = WHOLE,
    ) -> None:
        """`wake` receives (provider or alert, seconds until its status is to be written). `shard`: no Events
        come of the objects of others, whose statuses are compared instead.
        """
        self._shard = shard
        self._objects = objects
        self._now = now
        self.wake = wake
        self.alerts = AlertSelection(objects)
        self._reporter = AlertReporter(objects, now)
        self._slots: dict[ObjectKey, _Slot] | None = None
        self._accepted: dict[ObjectKey, datetime] = {}
        """Time of each object's newest Event, the oldest first; not older than UNDER_WAY."""
        self.settled = False
        """Whether the cache has the last leader's writes, so that objects can be compared."""
        self.sendable: Callable[[ObjectKey], None] = lambda _: None
        """Receives each provider with sendable messages."""

    def begin(self) -> None:
        """Begin to lead, and drop the state of an earlier lead."""
        self._slots, self.settled = {}, False

    def end(self) -> None:
        """Stop leading."""
        self._slots = None

    def accept(self, event: Event) -> None:
        """Queue the Event in the outbox of each provider whose alert selects it."""
        try:
            self._accept(event)
        except Exception:
            # An error here must not prevent the write of the object's status.
            log.exception("an Event cannot be matched with alerts", extra=about(event.object))

    def _accept(self, event: Event) -> None:
        if self._slots is None:
            return
        self._accepted.pop(event.object, None)
        self._accepted[event.object] = self._now()
        self._under_way()
        unread, concerned = set(), set()
        for selected in self.alerts.alerts_about(event.object, self._labels(event.object)):
            boxes = []
            for key in selected.providers:
                resource = self._objects.get(key)
                if resource is None or resource.suspended:
                    continue
                concerned.add(key)
                slot = self._slots.setdefault(key, _Slot())
                if slot.box is None:
                    unread.add(key)
                else:
                    boxes.append(slot.box)
            self._reporter.report(boxes, selected, event)
        for key in unread:
            slot = self._slots[key]
            slot.dropped += len(slot.early) == MOST_EARLY
            slot.early.append(event)
        for key in concerned:
            self.wake(key, 0.0)

    def box(self, key: ObjectKey) -> ProviderOutbox | None:
        """Return a provider's outbox, if it was read."""
        slot = (self._slots or {}).get(key)
        return None if slot is None else slot.box

    def boxes(self) -> dict[ObjectKey, ProviderOutbox]:
        """Return all outboxes that were read."""
        return {key: slot.box for key, slot in (self._slots or {}).items() if slot.box is not None}

    def open(self, key: ObjectKey, status: FlagProviderStatus) -> ProviderOutbox:
        """Return the provider's outbox, read from its newest `status`, with the early Events."""
        box = ProviderOutbox.of(status)
        if (known := self._objects.get(key)) is not None:
            box.type = str(known.spec.get("type"))
        slot = _Slot() if self._slots is None else self._slots.setdefault(key, _Slot())
        slot.box = box
        while slot.early:
            event = slot.early.popleft()
            labels = self._labels(event.object)
            for named in self.alerts.of_provider(key).values():
                if self.alerts.concerns(named, event.object, labels):
                    self._reporter.report([box], named, event)
        if slot.dropped:
            box.count_dropped(slot.dropped, "more Events came before the provider was read than may")
            slot.dropped = 0
        self.sendable(key)
        return box

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted provider."""
        if self._slots is not None:
            self._slots.pop(key, None)

    async def compare(self, resource: Resource) -> None:
        """Report unreported changes, once objects are cached and when the provider or its alerts change."""
        slot = (self._slots or {}).get(resource.key)
        if slot is None or slot.box is None or not self.settled:
            return
        named = self.alerts.of_provider(resource.key)
        version = (
            resource.generation,
            {(named_alert.resource.uid, named_alert.resource.generation) for named_alert in named.values()},
        )
        if slot.compared == version:
            return
        slot.compared = version
        for subject in tuple(slot.box.reported):
            name, key = split_subject(subject, resource.namespace)
            if name not in named or self.alerts.is_withdrawn(named[name], key):
                slot.box.remember(subject, None)
            elif self._objects.get(key) is None:
                self._reporter.report_deletion(slot.box, named[name], Resource(key, "", 0, ""))
        under_way = self._under_way()
        for named_alert in named.values():
            for number, candidate in enumerate(self.alerts.candidates(named_alert), 1):
                if number % _AT_A_STRETCH == 0:
                    await asyncio.sleep(0)
                known = self._objects.get(candidate.key)
                if known is None or not self.alerts.concerns(named_alert, known.key, known.labels):
                    continue
                if known.key in under_way:
                    slot.compared = None
                else:
                    self._reporter.compare(slot.box, named_alert, known)
        if slot.compared is None:
            self.wake(resource.key, UNDER_WAY.total_seconds())

    def _under_way(self) -> Collection[ObjectKey]:
        """Return the objects whose cached status may be older than their newest Event."""
        since = self._now() - UNDER_WAY
        while self._accepted:
            key, at = next(iter(self._accepted.items()))
            if at > since:
                break
            del self._accepted[key]
        return self._accepted

    def recheck(self, resource: Resource) -> None:
        """Report due failures: those that lasted long enough, or are repeated."""
        slot = (self._slots or {}).get(resource.key)
        if slot is None or slot.box is None:
            return
        slot.box.type = str(resource.spec.get("type"))
        if not self.settled:
            return
        now, named = self._now(), self.alerts.of_provider(resource.key)
        for subject in [name for name, recheck in slot.box.rechecks.items() if recheck.is_due(now)]:
            name, key = split_subject(subject, resource.namespace)
            failing = self._objects.get(key)
            if name not in named or failing is None or not status_of(failing).failure:
                del slot.box.rechecks[subject]
            elif self.alerts.is_withdrawn(named[name], key):
                slot.box.remember(subject, None)
            else:
                self._reporter.report_failure(slot.box, named[name], failing)

    def forget_alert(self, key: ObjectKey) -> None:
        """Forget the outcomes of a deleted alert."""
        for provider_key, box in self.boxes().items():
            if provider_key.namespace == key.namespace:
                box.of_alerts.pop(key.name, None)

    def on_change(self, change: Change) -> None:
        """Handle a change of any object."""
        selected = self.alerts.on_change(change)
        if self._slots is None:
            return
        for key in selected:
            self.wake(key, 0.0)
        before, after = change.before, change.after
        if change.latest.key.kind in {flaggrant.KIND, NAMESPACE.kind}:
            affected = self.alerts.namespaces_affected(change)
            for key, slot in self._slots.items():
                if key.namespace in affected:
                    slot.compared = None
        elif change.latest.key.kind == flagprovider.KIND:
            self._note_stored(change)
        elif after is not None:
            for followed in followed_by_commits(self._objects, after):
                self._report_progress(followed)
        if before is not None and (
            after is None or (status_of(after).is_ready and not status_of(before).is_ready)
        ):
            self._report_end(before, after)
        if after is not None and self.settled and not self._shard.owns(after):
            self._report_state(after)

    def _report_state(self, resource: Resource) -> None:
        """Report what the status of another shard's object says that was not reported."""
        for key, box, selected in self._near(resource.namespace):
            if self.alerts.concerns(selected, resource.key, resource.labels):
                self._reporter.compare(box, selected, resource)
                self.wake(key, 0.0)

    def _report_progress(self, thing: Resource) -> None:
        """Report the current state of a flag set or rollout to commits and change requests."""
        for key, box, selected in self._near(thing.namespace):
            if box.type not in FOLLOWING_STATUS:
                continue
            others = sets_compared_with(self._objects, thing) if box.type in CHANGE_REQUESTS else []
            for shown in (thing, *others):
                if self.alerts.concerns(selected, shown.key, shown.labels) and self._reporter.report_progress(
                    box, selected, shown
                ):
                    self.wake(key, 0.0)

    def _near(self, namespace: str) -> Iterator[tuple[ObjectKey, ProviderOutbox, Alert]]:
        """Yield each alert that may select objects of a namespace, with each of its providers."""
        for selected in self.alerts.near(namespace):
            for key in selected.providers:
                if (box := self.box(key)) is not None:
                    yield key, box, selected

    def _note_stored(self, change: Change) -> None:
        """Note which messages the API server stores."""
        namespace = change.latest.key.namespace
        before, after = (_pending_messages(resource) for resource in (change.before, change.after))
        for name in {str(message.get("alert") or "") for message in (*before, *after)} - {""}:
            self.wake(ObjectKey(flagalert.KIND, namespace, name), WRITE_ALERT_LATER)
        box = self.box(change.latest.key)
        if box is not None and change.after is not None:
            box.mark_stored({str(message.get("key")) for message in after})
            if next(box.sendable(), None) is not None:
                self.sendable(change.latest.key)

    def _report_end(self, before: Resource, after: Resource | None) -> None:
        """Report an object that works or was deleted after waiting, for which no Event is sent."""
        for key, box, selected in self._near(before.namespace):
            subject = selected.subject(before.key)
            reported = box.of_subject(subject)
            if reported is None or self.alerts.is_withdrawn(selected, before.key):
                continue
            if after is None:
                self._reporter.report_deletion(box, selected, before)
            elif reported.failures:
                self._reporter.report_recovery(box, selected, after)
            box.rechecks.pop(subject, None)
            self.wake(key, 0.0)

    def _labels(self, key: ObjectKey) -> Mapping[str, str]:
        resource = self._objects.get(key)
        return {} if resource is None else resource.labels


def _pending_messages(resource: Resource | None) -> list[dict[str, object]]:
    """Return the messages that wait in a provider's status, as they are stored."""
    pending = None if resource is None else resource.status.get("pending")
    return [message for message in pending if isinstance(message, dict)] if isinstance(pending, list) else []
