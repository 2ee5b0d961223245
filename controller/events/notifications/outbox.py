"""The sink of Events for alerts: each waits in its provider's box, which the provider's status stores.

Accepting an Event only changes memory: the provider's reconciler writes the status, and only stored messages
are sent. Messages lost with a process are found again by comparing objects with what was reported of them.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from controller.api import alert, flagset, grant, provider
from controller.api.alert import FlagAlertStatus
from controller.api.kinds import NAMESPACE, status_of
from controller.api.objects.meta import ObjectKey, Resource, about
from controller.api.provider import FlagProviderStatus
from controller.events.notifications import flag_set_progress as standing
from controller.events.notifications.alert_filter import parted
from controller.events.notifications.alert_selection import (
    alerts_of,
    concerns,
    providers_of,
    reporting_on,
    things_of,
    withdrawn,
)
from controller.events.notifications.provider_outbox import Box
from controller.events.notifications.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime

    from controller.events.notifications.alert_filter import Alert
    from controller.runtime.events import Event
    from controller.runtime.objects.cache import Cache, Change

log = logging.getLogger(__name__)

MOST_EARLY: Final = 1_000
"""Most Events that wait until their provider's box is read."""
UNDER_WAY: Final = timedelta(seconds=10)
"""Time for which a cached object may be older than its newest Event: the status is written later."""
WRITE_ALERT_LATER: Final = 5.0
"""Seconds from the write of a provider's status to that of its alerts, so that one covers many messages."""


@dataclass(slots=True)
class _Slot:
    """The state of one provider while this replica leads."""

    box: Box | None = None
    """The box; None: it was not read yet."""
    early: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EARLY))
    lost: int = 0
    """Number of dropped early Events."""
    compared: object = None
    """The provider and its alerts as of the last comparison with all objects."""


class Outbox:
    """An EventSink of the leader: active between `begin` and `end`."""

    def __init__(
        self, objects: Cache, now: Callable[[], datetime], wake: Callable[[ObjectKey, float], None]
    ) -> None:
        """`wake` receives (provider, seconds until its status is to be written)."""
        self._objects = objects
        self._now = now
        self.wake = wake
        self.reporter = Reporter(objects, now)
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
        """Queue the Event in the box of each provider whose alert selects it."""
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
        for key in providers_of(self._objects, event.object, self._labels(event.object)):
            slot = self._slots.setdefault(key, _Slot())
            if slot.box is None:
                slot.lost += len(slot.early) == MOST_EARLY
                slot.early.append(event)
            else:
                self._take(key, slot.box, event)
            self.wake(key, 0.0)

    def box(self, key: ObjectKey) -> Box | None:
        """Return a provider's box, if it was read."""
        slot = (self._slots or {}).get(key)
        return None if slot is None else slot.box

    def boxes(self) -> dict[ObjectKey, Box]:
        """Return all boxes that were read."""
        return {key: slot.box for key, slot in (self._slots or {}).items() if slot.box is not None}

    def open(self, key: ObjectKey, status: FlagProviderStatus) -> Box:
        """Return the provider's box, read from its newest `status`, with the early Events."""
        box = Box.of(status)
        if (known := self._objects.get(key)) is not None:
            box.type = str(known.spec.get("type"))
        slot = _Slot() if self._slots is None else self._slots.setdefault(key, _Slot())
        slot.box = box
        while slot.early:
            self._take(key, box, slot.early.popleft())
        if slot.lost:
            box.lose(slot.lost, "more Events came before the provider was read than may")
            slot.lost = 0
        self.sendable(key)
        return box

    def forget(self, key: ObjectKey) -> None:
        """Forget a deleted provider."""
        if self._slots is not None:
            self._slots.pop(key, None)

    def compare(self, resource: Resource) -> None:
        """Report unreported changes, once objects are cached and when the provider or alerts change."""
        slot = (self._slots or {}).get(resource.key)
        if slot is None or slot.box is None or not self.settled:
            return
        found = alerts_of(self._objects, resource.namespace, resource.name)
        alerts = [each.resource for each in found.values()]
        version = (resource.generation, {(each.uid, each.generation) for each in alerts})
        if slot.compared == version:
            return
        slot.compared = version
        under_way = self._under_way()
        for subject in tuple(slot.box.reported):
            name, key = parted(subject, resource.namespace)
            if name not in found or withdrawn(self._objects, found[name], key):
                slot.box.remember(subject, None)
            elif self._objects.get(key) is None:
                self.reporter.gone(slot.box, found[name], Resource(key, "", 0, ""))
        for each in found.values():
            for thing in things_of(self._objects, each):
                if thing.key in under_way:
                    slot.compared = None
                else:
                    self.reporter.compare(slot.box, each, thing)
        if slot.compared is None:
            self.wake(resource.key, UNDER_WAY.total_seconds())

    def _under_way(self) -> Collection[ObjectKey]:
        """Return the objects whose cached status may be older than their newest Event."""
        since = self._now() - UNDER_WAY
        for key, at in tuple(self._accepted.items()):
            if at > since:
                break
            del self._accepted[key]
        return self._accepted

    def look(self, resource: Resource) -> None:
        """Report due failures: those that lasted long enough, or are repeated."""
        slot = (self._slots or {}).get(resource.key)
        if slot is None or slot.box is None:
            return
        slot.box.type = str(resource.spec.get("type"))
        if not self.settled:
            return
        now, found = self._now(), alerts_of(self._objects, resource.namespace, resource.name)
        for subject in [name for name, each in slot.box.due.items() if each.is_now(now)]:
            name, key = parted(subject, resource.namespace)
            thing = self._objects.get(key)
            if name not in found or thing is None or not status_of(thing).failure:
                del slot.box.due[subject]
            elif withdrawn(self._objects, found[name], key):
                slot.box.remember(subject, None)
            else:
                self.reporter.fails(slot.box, found[name], thing)

    def of_alert(self, resource: Resource) -> FlagAlertStatus:
        """Return the outcomes of an alert's messages as fields of its status; None for empty ones."""
        before = FlagAlertStatus.of(resource)
        deliveries, failures = [before.last_delivery], [before.last_failure]
        waiting = 0
        for each in self._objects.of_kind(provider.KIND, resource.namespace):
            waiting += _alerts_of_pending(each).count(resource.name)
            box = self.box(each.key)
            found = None if box is None else box.of_alerts.get(resource.name)
            if found is None:
                continue
            deliveries.append(found.last_delivery)
            if (failed := found.last_failure) is not None:
                words = f"FlagProvider {each.name}: {failed.message}"
                failures.append(failed.model_copy(update={"message": words}))
        return FlagAlertStatus(
            waiting=waiting,
            last_delivery=max(filter(None, deliveries), default=None),
            last_failure=max(filter(None, failures), key=lambda each: each.time, default=None),
        )

    def forget_alert(self, key: ObjectKey) -> None:
        """Forget the outcomes of a deleted alert."""
        for each, box in self.boxes().items():
            if each.namespace == key.namespace:
                box.of_alerts.pop(key.name, None)

    def changed(self, change: Change) -> tuple[()]:
        """Handle a change of any object."""
        if self._slots is None:
            return ()
        before, after = change.before, change.after
        if change.latest.key.kind in {grant.KIND, NAMESPACE.kind}:
            for slot in self._slots.values():
                slot.compared = None
        elif change.latest.key.kind == provider.KIND:
            self._written(change)
        elif after is not None and after.key.kind == flagset.KIND:
            self._standing(after)
        if before is not None and (
            after is None or (status_of(after).is_ready and not status_of(before).is_ready)
        ):
            self._works_again(before, after)
        return ()

    def _standing(self, thing: Resource) -> None:
        """Report the current state of a flag set to commits and pull requests."""
        for key, box, each in self._near(thing.namespace, standing.STANDING):
            compared = box.type in standing.PULL_REQUESTS
            for shown in (thing, *(standing.compared_with(self._objects, thing) if compared else ())):
                if not concerns(self._objects, each, shown.key, shown.labels):
                    continue
                if self.reporter.standing(box, each, shown):
                    self.wake(key, 0.0)

    def _near(
        self, namespace: str, types: Collection[str] | None = None
    ) -> Iterator[tuple[ObjectKey, Box, Alert]]:
        """Yield (alert, provider) for alerts that may select objects of a namespace; providers of `types`."""
        near = reporting_on(self._objects, namespace)
        for key, box in self.boxes().items():
            if key.namespace in near and (types is None or box.type in types):
                for each in alerts_of(self._objects, key.namespace, key.name).values():
                    yield key, box, each

    def _written(self, change: Change) -> None:
        namespace = change.latest.key.namespace
        for name in {
            name for each in (change.before, change.after) if each for name in _alerts_of_pending(each)
        }:
            self.wake(ObjectKey(alert.KIND, namespace, name), WRITE_ALERT_LATER)
        box = self.box(change.latest.key)
        if box is None or change.after is None:
            return
        pending = FlagProviderStatus.of(change.after).pending or ()
        if box.keep({each.key for each in pending}):
            self.sendable(change.latest.key)

    def _works_again(self, before: Resource, after: Resource | None) -> None:
        """Report an object that works or was deleted after waiting, for which no Event is sent."""
        for key, box, each in self._near(before.namespace):
            reported = box.of_subject(each.subject(before.key))
            if reported is None or withdrawn(self._objects, each, before.key):
                continue
            if after is None:
                self.reporter.gone(box, each, before)
            elif reported.failures:
                self.reporter.recovered(box, each, after)
            box.due.pop(each.subject(before.key), None)
            self.wake(key, 0.0)

    def _labels(self, key: ObjectKey) -> Mapping[str, str]:
        found = self._objects.get(key)
        return {} if found is None else found.labels

    def _take(self, key: ObjectKey, box: Box, event: Event) -> None:
        if box.type in standing.STANDING:
            # Commits and pull requests receive the state that the object's status shows.
            return
        labels = self._labels(event.object)
        for each in alerts_of(self._objects, key.namespace, key.name).values():
            if concerns(self._objects, each, event.object, labels):
                self.reporter.report(box, each, event)


def _alerts_of_pending(found: Resource) -> list[str]:
    """Return the alerts of the messages that wait in a provider's status; tests have none."""
    return [each.alert for each in FlagProviderStatus.of(found).pending or () if each.alert]
