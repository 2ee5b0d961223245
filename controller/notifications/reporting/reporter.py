"""What one alert reports of one object to a provider: each incident once, again where the alert asks for
that, and its end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from controller.api.conditions import READY
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey, about, timestamp
from controller.api.provenance import LINK
from controller.notifications import messages
from controller.notifications.box import Due, Reported, shortened
from controller.notifications.forms import comments, commits, journeys, otlp, templates
from controller.notifications.forms.journeys import Moments
from controller.notifications.forms.repositories import link_of
from controller.notifications.reporting.choosing import Fact, chooses
from controller.notifications.reporting.grouping import waiting
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.alert import FlagAlertSpec
    from controller.api.meta import Resource
    from controller.api.provider import Message
    from controller.notifications.box import Box
    from controller.runtime.events import Event
    from controller.runtime.objects.cache import Cache

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reporter:
    """Has messages wait in boxes."""

    objects: Cache
    now: Callable[[], datetime]
    wake: Callable[[ObjectKey, float], None]
    moments: Moments = field(default_factory=Moments)
    _complaints: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By an alert's uid: the generation of its spec, and why a condition could not be evaluated."""

    def compare(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """Report of one object what was not reported yet."""
        if box.type in comments.STANDING:
            self.standing(box, alert, spec, thing)
            return
        if box.type == otlp.TYPE:
            self._journey(box, alert, spec, thing)
        subject = subject_of(alert, thing.key)
        reported, status = box.of_subject(subject), status_of(thing)
        digest = status.content[1]
        if status.failure:
            self.fails(box, alert, spec, thing)
        elif reported is not None and reported.failures:
            if status.is_ready:
                self.recovered(box, alert, spec, thing)
        elif reported is not None and reported.digest and digest and shortened(digest) != reported.digest:
            message = messages.of_state(thing, alert, spec, digest, self.now())
            if self._chosen(alert, spec, Fact(message, thing)):
                self._push(box, alert, spec, message)
            box.remember(subject, Reported((), shortened(digest)))
        elif reported is None and digest:
            # What was there before the alert is not reported.
            box.remember(subject, Reported((), shortened(digest)))

    def report(self, box: Box, alert: Resource, spec: FlagAlertSpec, event: Event) -> None:
        """Have the Event wait, unless it is another word about an incident that was reported."""
        subject = subject_of(alert, event.object)
        reported = box.of_subject(subject) or Reported()
        message = messages.of_event(event, alert, spec)
        if event.reason == messages.RECOVERED:
            # Recipients of the failure receive its end, whatever else they select.
            box.due.pop(subject, None)
            if reported.failures:
                self._push(box, alert, spec, message.model_copy(update={"state": "recovered"}))
                box.remember(subject, Reported((), shortened(event.digest) or reported.digest))
            return
        failures, reported_at = reported.failures, reported.reported_at
        fact = Fact(message, self.objects.get(event.object), event.flags, event.ends)
        if self._chosen(alert, spec, fact):
            if message.severity == "error":
                if event.failure in failures:
                    return
                due = _due(spec, fact.subject, reported, event.time)
                if due is not None and due.first and not due.is_now(event.time):
                    box.remember(subject, Reported(failures, shortened(event.digest) or reported.digest))
                    box.due[subject] = due
                    return
                message = message.model_copy(update={"state": "failing"})
                failures, reported_at = (*failures, event.failure), timestamp(event.time)
            self._push(box, alert, spec, message)
        # What is not wanted now is not wanted by the next leader either.
        after = Reported(failures, shortened(event.digest) or reported.digest, reported_at)
        box.remember(subject, after)
        self._again(box, subject, spec, fact.subject, after)

    def _push(self, box: Box, alert: Resource, spec: FlagAlertSpec, message: Message) -> None:
        namespace = message.namespace or alert.namespace
        named = ObjectKey(message.kind, namespace, message.name)
        if page := link_of(self.objects, named, message.metadata.get(REVISION_KEY, "")):
            message = message.model_copy(update={"metadata": message.metadata | {LINK: page}})
        if spec.template is not None:
            words = templates.filled(spec.template, message, namespace)
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

    def fails(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """Report an object that fails, if it has done so for long enough, and again if it is time."""
        subject, reason, now = subject_of(alert, thing.key), status_of(thing).failure, self.now()
        reported = box.of_subject(subject) or Reported()
        again = reason in reported.failures
        due = _due(spec, thing, reported if again else Reported(), now)
        if due is not None and not due.is_now(now):
            box.due[subject] = due
            return
        if again and due is None:
            return
        again_after = f" after {reported.reported_at}" if again else ""
        state = f"{reason} {_since(thing, now)}{again_after}"
        message = messages.of_state(thing, alert, spec, state, now, severity="error", state="failing")
        if not self._chosen(alert, spec, Fact(message, thing)):
            box.due.pop(subject, None)
            return
        self._push(box, alert, spec, message)
        failures = reported.failures if again else (*reported.failures, reason)
        after = Reported(failures, reported.digest, timestamp(now))
        box.remember(subject, after)
        self._again(box, subject, spec, thing, after)

    def _again(
        self, box: Box, subject: str, spec: FlagAlertSpec, thing: Resource | None, now: Reported
    ) -> None:
        """Plan the next report of what is repeated while it fails."""
        if now.failures:
            box.due.pop(subject, None)
            if (due := _due(spec, thing, now, self.now())) is not None:
                box.due[subject] = due

    def recovered(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """Report that an object works whose failure was reported."""
        subject = subject_of(alert, thing.key)
        box.due.pop(subject, None)
        reported = box.of_subject(subject) or Reported()
        identity, how = (
            f"{thing.resource_version} works",
            {"state": "recovered", "reason": messages.RECOVERED},
        )
        self._push(box, alert, spec, messages.of_state(thing, alert, spec, identity, self.now(), **how))
        box.remember(subject, Reported((), shortened(status_of(thing).content[1]) or reported.digest))

    def gone(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> None:
        """The object was deleted, which ends what it failed with; `thing` is what is known of it."""
        subject = subject_of(alert, thing.key)
        reported = box.of_subject(subject) or Reported()
        if reported.failures:
            identity = f"{thing.resource_version} gone"
            how = {"state": "recovered", "reason": "Deleted", "message": "it was deleted while it failed"}
            self._push(box, alert, spec, messages.of_state(thing, alert, spec, identity, self.now(), **how))
        box.remember(subject, None)

    def standing(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> bool:
        """Report to a commit, its pull request or a collector how far the flag set made of it has come.
        Returns whether that changed.
        """
        if box.type == otlp.TYPE:
            return self._journey(box, alert, spec, thing)
        subject = subject_of(alert, thing.key)
        before = (box.of_subject(subject) or Reported()).digest
        if box.type in comments.TYPES:
            base = comments.base_of(self.objects, thing)
            state = comments.standing_of(thing, base, alert, spec, self.now())
        else:
            state = commits.standing_of(thing, before, alert, spec, self.now())
        if state is None or state[1] == before:
            return False
        message, after = state
        box.remember(subject, Reported((), after))
        if self._chosen(alert, spec, Fact(message, thing)):
            box.push(message)
        return True

    def _journey(self, box: Box, alert: Resource, spec: FlagAlertSpec, thing: Resource) -> bool:
        """Report the trace of a revision to a collector, once. Returns whether that was due."""
        now = self.now()
        journey = journeys.journey_of(thing, self.objects, self.moments, now)
        if not journey:
            return False
        message = journeys.message_of(thing, alert, spec, journey, now)
        subject = subject_of(alert, thing.key)
        if box.journeys.get(subject) == message.key:
            return False
        box.journeys[subject] = message.key
        if not self._chosen(alert, spec, Fact(message, thing)):
            return False
        box.push(message)
        return True


def subject_of(alert: Resource, key: ObjectKey) -> str:
    """As what is reported of an object is remembered."""
    place = "" if key.namespace == alert.namespace else f"{key.namespace}/"
    return f"{alert.name}/{key.kind}/{place}{key.name}"


def parted(subject: str, namespace: str) -> tuple[str, ObjectKey]:
    """(an alert's name, the object) of what `subject_of` made of them; `namespace` is the alert's."""
    alert, kind, *place = subject.split("/")
    return alert, ObjectKey(kind, place[0] if len(place) > 1 else namespace, place[-1] if place else "")


def _since(thing: Resource | None, now: datetime) -> datetime:
    """Since when an object fails: `now` where its status does not say so yet."""
    if thing is None or not (status := status_of(thing)).failure:
        return now
    return _moment(status.condition(READY).since, now)


def _due(spec: FlagAlertSpec, thing: Resource | None, reported: Reported, now: datetime) -> Due | None:
    """When the failure that was `reported` so is looked at next; None: never again."""
    if not reported.failures:
        return _after(_since(thing, now), spec.lasting or 0.0, first=True)
    if spec.repeat_interval is None:
        return None
    return _after(_moment(reported.reported_at, _since(thing, now)), spec.repeat_interval, first=False)


def _after(moment: datetime, seconds: float, *, first: bool) -> Due:
    return Due(moment + timedelta(seconds=seconds), first=first, span=seconds)


def _moment(text: str, otherwise: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return found if found.tzinfo is not None else otherwise
