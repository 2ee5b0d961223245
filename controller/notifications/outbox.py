"""The sink of Events that alerts are about: each waits in its provider's box, which the provider's status
keeps.

Local and quick: the provider's reconcile writes the status, and only what is written is sent. What was lost
with a process before it was written is found again by comparing objects with what was reported of them.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api import provider
from controller.api.conditions import READY, TRUE, failure, find
from controller.api.meta import ObjectKey, Resource, about
from controller.notifications import messages, over_time, templates
from controller.notifications.box import Box, Reported, moment, shortened
from controller.notifications.choosing import Fact, chooses
from controller.notifications.grouping import waiting
from controller.notifications.matching import alerts_of, concerns, providers_of
from controller.runtime.events import Severity, content

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.api.alert import FlagAlertSpec
    from controller.api.provider import Message
    from controller.runtime.cache import Cache, Change
    from controller.runtime.events import Event

log = logging.getLogger(__name__)

MOST_EARLY: Final = 1_000
"""Events that wait until their provider's box was read."""


@dataclass(slots=True)
class _Slot:
    """What is known of one provider while this replica leads."""

    box: Box | None = None
    """None: not read yet."""
    early: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EARLY))
    compared: object = None
    """The provider and its alerts at the last comparison with all objects."""


class Outbox:
    """An EventSink. Belongs to the leader: `begin` and `end` say while it leads."""

    def __init__(
        self, objects: Cache, now: Callable[[], datetime], wake: Callable[[ObjectKey, float], None]
    ) -> None:
        """`wake` is called with providers whose status is to be written, in so many seconds."""
        self._objects = objects
        self._now = now
        self.wake = wake
        self._slots: dict[ObjectKey, _Slot] | None = None
        self._complaints: dict[str, tuple[int, str]] = {}
        """By an alert's uid: the generation of its spec, and why it could not be evaluated."""
        self.settled = False
        """Whether the objects are known as the leader before us left them, so that they can be compared."""
        self.sendable: Callable[[ObjectKey], None] = lambda _: None
        """Reported of providers that have something to be sent."""

    def begin(self) -> None:
        """Lead: what was known is of another time."""
        self._slots, self.settled, self._complaints = {}, False, {}

    def end(self) -> None:
        """Lead no more."""
        self._slots = None

    def accept(self, event: Event) -> None:
        """Have the Event wait in the box of each provider that an alert names for it."""
        try:
            self._accept(event)
        except Exception:
            # Whatever an alert or a message is like, the object's status is written.
            log.exception("an Event cannot be matched with alerts", extra=about(event.object))

    def _accept(self, event: Event) -> None:
        if self._slots is None:
            return
        for key in providers_of(self._objects, event.object, self._labels(event.object)):
            slot = self._slots.setdefault(key, _Slot())
            if slot.box is None:
                slot.early.append(event)
            else:
                self._take(key, slot.box, event)
            self.wake(key, 0.0)

    def box(self, key: ObjectKey) -> Box | None:
        """A provider's, if it was read."""
        slot = (self._slots or {}).get(key)
        return None if slot is None else slot.box

    def boxes(self) -> dict[ObjectKey, Box]:
        """All that were read."""
        return {key: slot.box for key, slot in (self._slots or {}).items() if slot.box is not None}

    def open(self, key: ObjectKey, status: Mapping[str, object]) -> Box:
        """The provider's box, as `status`, the newest there is, keeps it. What came early is in it."""
        box = Box.of(status)
        if (known := self._objects.get(key)) is not None:
            box.type = str(known.spec.get("type"))
        slot = _Slot() if self._slots is None else self._slots.setdefault(key, _Slot())
        slot.box = box
        while slot.early:
            self._take(key, box, slot.early.popleft())
        self.sendable(key)
        return box

    def forget(self, key: ObjectKey) -> None:
        """The provider is gone."""
        if self._slots is not None:
            self._slots.pop(key, None)

    def compare(self, resource: Resource) -> None:
        """Once the objects are known, and whenever a provider or its alerts changed: report what nobody did,
        what fails and what works again.
        """
        slot = (self._slots or {}).get(resource.key)
        if slot is None or slot.box is None or not self.settled:
            return
        found = alerts_of(self._objects, resource.namespace, resource.name)
        version = (resource.generation, {(each.uid, each.generation) for each, _ in found.values()})
        if slot.compared == version:
            return
        slot.compared = version
        for subject in tuple(slot.box.reported):
            name, _, rest = subject.partition("/")
            kind, _, called = rest.partition("/")
            key = ObjectKey(kind, resource.namespace, called)
            if name not in found:
                slot.box.remember(subject, None)
            elif self._objects.get(key) is None:
                self._gone(slot.box, *found[name], Resource(key, "", 0, ""))
        for each, spec in found.values():
            for kind in dict.fromkeys(source.kind for source in spec.event_sources):
                for thing in self._objects.of_kind(kind, resource.namespace):
                    if concerns(spec, thing.key, thing.labels):
                        self._compare(slot.box, each, spec, thing)

    def look(self, resource: Resource) -> None:
        """Tell of failures of which it is time: they lasted as long as they must, or are told of again."""
        slot = (self._slots or {}).get(resource.key)
        if slot is None or slot.box is None:
            return
        slot.box.type = str(resource.spec.get("type"))
        if not self.settled:
            return
        now, found = self._now(), alerts_of(self._objects, resource.namespace, resource.name)
        for subject in [name for name, each in slot.box.due.items() if each.at <= now]:
            name, kind, called = subject.split("/", 2)
            thing = self._objects.get(ObjectKey(kind, resource.namespace, called))
            if name not in found or thing is None or not failure(thing.status):
                del slot.box.due[subject]
            else:
                self._fails(slot.box, *found[name], thing)

    def changed(self, change: Change) -> tuple[()]:
        """Take note of a change of any object. Wakes nobody by itself."""
        if self._slots is None:
            return ()
        before, after = change.before, change.after
        if change.latest.key.kind == provider.KIND:
            self._written(change)
        elif before is not None and (after is None or (_works(after) and not _works(before))):
            self._works_again(before, after)
        return ()

    def _written(self, change: Change) -> None:
        box = self.box(change.latest.key)
        if box is None or change.after is None:
            return
        keys = {
            str(each.get("key"))
            for each in change.after.status.get("pending") or ()
            if isinstance(each, dict)
        }
        if box.keep(keys):
            self.sendable(change.latest.key)

    def _works_again(self, before: Resource, after: Resource | None) -> None:
        """An object works, or is gone, that waited for something before: no Event says so."""
        for key, box in self.boxes().items():
            if key.namespace != before.namespace:
                continue
            for each, spec in alerts_of(self._objects, key.namespace, key.name).values():
                reported = box.of_subject(_subject(each, before.key))
                if reported is None:
                    continue
                if after is None:
                    self._gone(box, each, spec, before)
                elif reported.failures:
                    self._recovered(box, each, spec, after)
                box.due.pop(_subject(each, before.key), None)
                self.wake(key, 0.0)

    def _labels(self, key: ObjectKey) -> Mapping[str, str]:
        found = self._objects.get(key)
        return {} if found is None else found.labels

    def _take(self, key: ObjectKey, box: Box, event: Event) -> None:
        labels = self._labels(event.object)
        for each, spec in alerts_of(self._objects, key.namespace, key.name).values():
            if concerns(spec, event.object, labels):
                self._tell(box, each, spec, event)

    def _compare(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """Tell of one object what was not reported."""
        subject = _subject(alert, thing.key)
        reported, (_, digest) = box.of_subject(subject), content(thing.status)
        failing = failure(thing.status)
        if failing:
            self._fails(box, alert, spec, thing)
        elif reported is not None and reported.failures:
            if _works(thing):
                self._recovered(box, alert, spec, thing)
        elif reported is not None and reported.digest and digest and shortened(digest) != reported.digest:
            message = messages.of_state(thing, alert, spec, digest, self._now())
            if self._chosen(alert, spec, Fact(message, False, thing)):
                self._push(box, alert, spec, message)
            box.remember(subject, Reported((), shortened(digest)))
        elif reported is None and digest:
            # Of what was there before the alert there is no news.
            box.remember(subject, Reported((), shortened(digest)))

    def _tell(self, box: Box, alert: Resource, spec: FlagAlertSpec, event: Event) -> None:
        """Have the Event wait, unless it is another word about an incident that was reported."""
        subject = _subject(alert, event.object)
        reported = box.of_subject(subject) or Reported()
        message = messages.of_event(event, alert, spec)
        if event.reason == messages.RECOVERED:
            # Whoever was notified of the failure is notified of its end, whatever else they want to know.
            box.due.pop(subject, None)
            if reported.failures:
                self._push(box, alert, spec, message.model_copy(update={"state": "recovered"}))
                box.remember(subject, Reported((), shortened(event.digest) or reported.digest))
            return
        warning, failures, told = event.severity is Severity.WARNING, reported.failures, reported.told
        fact = Fact(message, warning, self._objects.get(event.object), event.flags)
        if self._chosen(alert, spec, fact):
            if warning and event.reason == event.failure:
                if event.failure in failures:
                    return
                due = over_time.due(spec, fact.subject, reported, event.time)
                if due is not None and due.first and due.at > event.time:
                    box.remember(subject, Reported(failures, shortened(event.digest) or reported.digest))
                    box.due[subject] = due
                    return
                message = message.model_copy(update={"state": "failing"})
                failures, told = (*failures, event.failure), moment(event.time)
            self._push(box, alert, spec, message)
        # What is not wanted now is not wanted by the next leader either.
        after = Reported(failures, shortened(event.digest) or reported.digest, told)
        box.remember(subject, after)
        self._again(box, subject, spec, fact.subject, after)

    def _push(self, box: Box, alert: Resource, spec: FlagAlertSpec, message: Message) -> None:
        if spec.template is not None:
            words = templates.filled(spec.template, message, alert.namespace)
            message = message.model_copy(update={"message": words})
        box.push(waiting(message, spec, box.type))

    def _chosen(self, alert: Resource, spec: FlagAlertSpec, fact: Fact) -> bool:
        return chooses(spec, fact, lambda why: self._complain(alert, why))

    def _complain(self, alert: Resource, why: str) -> None:
        """A condition could not be evaluated: the alert's status says so, until its spec changes."""
        if self._complaints.get(alert.uid) != (alert.generation, why):
            self._complaints[alert.uid] = (alert.generation, why)
            log.warning("a condition of an alert cannot be evaluated: %s", why, extra=about(alert.key))
            self.wake(alert.key, 0.0)

    def complaint(self, alert: Resource) -> str:
        """Why a condition of the alert could not be evaluated last; empty where none was."""
        generation, why = self._complaints.get(alert.uid, (alert.generation, ""))
        return why if generation == alert.generation else ""

    def _fails(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """Tell of an object that fails, if it has done so for long enough, and again if it is time."""
        subject, reason, now = _subject(alert, thing.key), failure(thing.status), self._now()
        reported = box.of_subject(subject) or Reported()
        again = reason in reported.failures
        due = over_time.due(spec, thing, reported if again else Reported(), now)
        if due is not None and due.at > now:
            box.due[subject] = due
            return
        if again and due is None:
            return
        state = f"{reason} {over_time.since(thing, now)}" + (f" after {reported.told}" if again else "")
        message = messages.of_state(thing, alert, spec, state, now)
        if not self._chosen(alert, spec, Fact(message, True, thing)):
            box.due.pop(subject, None)
            return
        self._push(box, alert, spec, message.model_copy(update={"severity": "error", "state": "failing"}))
        failures = reported.failures if again else (*reported.failures, reason)
        after = Reported(failures, reported.digest, moment(now))
        box.remember(subject, after)
        self._again(box, subject, spec, thing, after)

    def _again(
        self, box: Box, subject: str, spec: FlagAlertSpec, thing: Resource | None, now: Reported
    ) -> None:
        """Look once more at what is told of again while it fails."""
        if now.failures:
            box.due.pop(subject, None)
            if (due := over_time.due(spec, thing, now, self._now())) is not None:
                box.due[subject] = due

    def _recovered(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        subject = _subject(alert, thing.key)
        box.due.pop(subject, None)
        reported = box.of_subject(subject) or Reported()
        message = messages.of_state(thing, alert, spec, f"{thing.resource_version} works", self._now())
        told = message.model_copy(update={"state": "recovered", "reason": messages.RECOVERED})
        self._push(box, alert, spec, told)
        box.remember(subject, Reported((), shortened(content(thing.status)[1]) or reported.digest))

    def _gone(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """The object was deleted, which ends what it failed with; `thing` is what is known of it."""
        subject = _subject(alert, thing.key)
        reported = box.of_subject(subject) or Reported()
        if reported.failures:
            message = messages.of_state(thing, alert, spec, f"{thing.resource_version} gone", self._now())
            update = {"state": "recovered", "reason": "Deleted", "message": "it was deleted while it failed"}
            self._push(box, alert, spec, message.model_copy(update=update))
        box.remember(subject, None)


def _subject(alert: Resource, key: ObjectKey) -> str:
    return f"{alert.name}/{key.kind}/{key.name}"


def _works(resource: Resource) -> bool:
    ready = find(resource.status.get("conditions") or (), READY)
    return ready is not None and ready.get("status") == TRUE
