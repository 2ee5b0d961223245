"""What an alert reports of an object: each incident once, again where the alert asks for it, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from controller.api.kinds import status_of
from controller.api.objects.conditions import READY
from controller.api.objects.meta import ObjectKey, timestamp
from controller.api.objects.provenance import LINK
from controller.events.notifications import alert_messages as messages
from controller.events.notifications import flag_set_progress as standing
from controller.events.notifications.alert_filter import Alert, Fact, chooses
from controller.events.notifications.commit_pages import link_of
from controller.events.notifications.grouping import waiting
from controller.events.notifications.provider_outbox import Due, Reported, shortened
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.alert import FlagAlertSpec
    from controller.api.objects.meta import Resource
    from controller.api.provider import Message
    from controller.events.notifications.provider_outbox import Box
    from controller.runtime.events import Event
    from controller.runtime.objects.cache import Cache


@dataclass(slots=True)
class Reporter:
    """Puts messages into boxes, where they wait to be sent."""

    objects: Cache
    now: Callable[[], datetime]

    def compare(self, box: Box, alert: Alert, thing: Resource) -> None:
        """Report what was not reported yet about one object."""
        if box.type in standing.STANDING:
            self.standing(box, alert, thing)
            return
        subject = alert.subject(thing.key)
        reported, status = box.of_subject(subject), status_of(thing)
        digest = status.content[1]
        if status.failure:
            self.fails(box, alert, thing)
        elif reported is not None and reported.failures:
            if status.is_ready:
                self.recovered(box, alert, thing)
        elif reported is not None and reported.digest and digest and shortened(digest) != reported.digest:
            message = messages.of_state(thing, alert, digest, self.now())
            if chooses(alert.spec, Fact(message, thing)):
                self._push(box, alert, message)
            box.remember(subject, Reported((), shortened(digest)))
        elif reported is None and digest:
            # States from before the alert are not reported.
            box.remember(subject, Reported((), shortened(digest)))

    def report(self, box: Box, alert: Alert, event: Event) -> None:
        """Queue the Event's message, unless its incident was already reported."""
        subject = alert.subject(event.object)
        reported = box.of_subject(subject) or Reported()
        message = messages.of_event(event, alert)
        if event.reason == messages.RECOVERED:
            # Recipients of the failure receive its end, whatever else they select.
            box.due.pop(subject, None)
            if reported.failures:
                self._push(box, alert, message.model_copy(update={"state": "recovered"}))
                box.remember(subject, Reported((), shortened(event.digest) or reported.digest))
            return
        failures, reported_at = reported.failures, reported.reported_at
        fact = Fact(message, self.objects.get(event.object), event.flags, event.ends)
        if chooses(alert.spec, fact):
            if message.severity == "error":
                if event.failure in failures:
                    return
                due = _due(alert.spec, fact.subject, reported, event.time)
                if due is not None and due.first and not due.is_now(event.time):
                    box.remember(subject, Reported(failures, shortened(event.digest) or reported.digest))
                    box.due[subject] = due
                    return
                message = message.model_copy(update={"state": "failing"})
                failures, reported_at = (*failures, event.failure), timestamp(event.time)
            self._push(box, alert, message)
        # Remember unselected messages too, so that the next leader does not report them.
        after = Reported(failures, shortened(event.digest) or reported.digest, reported_at)
        box.remember(subject, after)
        self._again(box, alert, subject, fact.subject, after)

    def _push(self, box: Box, alert: Alert, message: Message) -> None:
        namespace = message.namespace or alert.resource.namespace
        named = ObjectKey(message.kind, namespace, message.name)
        if page := link_of(self.objects, named, message.metadata.get(REVISION_KEY, "")):
            message = message.model_copy(update={"metadata": message.metadata | {LINK: page}})
        if alert.spec.template is not None:
            words = messages.filled(alert.spec.template, message, namespace)
            message = message.model_copy(update={"message": words})
        box.push(waiting(message, alert.spec, box.type))

    def fails(self, box: Box, alert: Alert, thing: Resource) -> None:
        """Report a failing object if it fails for long enough, and again when a repetition is due."""
        subject, reason, now = alert.subject(thing.key), status_of(thing).failure, self.now()
        reported = box.of_subject(subject) or Reported()
        again = reason in reported.failures
        due = _due(alert.spec, thing, reported if again else Reported(), now)
        if due is not None and not due.is_now(now):
            box.due[subject] = due
            return
        if again and due is None:
            return
        again_after = f" after {reported.reported_at}" if again else ""
        state = f"{reason} {_since(thing, now)}{again_after}"
        message = messages.of_state(thing, alert, state, now, severity="error", state="failing")
        if not chooses(alert.spec, Fact(message, thing)):
            box.due.pop(subject, None)
            return
        self._push(box, alert, message)
        failures = reported.failures if again else (*reported.failures, reason)
        after = Reported(failures, reported.digest, timestamp(now))
        box.remember(subject, after)
        self._again(box, alert, subject, thing, after)

    def _again(self, box: Box, alert: Alert, subject: str, thing: Resource | None, now: Reported) -> None:
        """Schedule the next repeated report of a failure."""
        if now.failures:
            box.due.pop(subject, None)
            if (due := _due(alert.spec, thing, now, self.now())) is not None:
                box.due[subject] = due

    def recovered(self, box: Box, alert: Alert, thing: Resource) -> None:
        """Report the recovery of an object whose failure was reported."""
        subject = alert.subject(thing.key)
        reported = box.of_subject(subject) or Reported()
        box.due.pop(subject, None)
        self._end(box, alert, thing, "works", reason=messages.RECOVERED)
        box.remember(subject, Reported((), shortened(status_of(thing).content[1]) or reported.digest))

    def gone(self, box: Box, alert: Alert, thing: Resource) -> None:
        """Report the deletion of an object, which ends its failure; `thing` is its last known state."""
        subject = alert.subject(thing.key)
        if (box.of_subject(subject) or Reported()).failures:
            self._end(box, alert, thing, "gone", reason="Deleted", message="it was deleted while it failed")
        box.remember(subject, None)

    def _end(self, box: Box, alert: Alert, thing: Resource, why: str, **how: str) -> None:
        identity = f"{thing.resource_version} {why}"
        given = {"state": "recovered", **how}
        self._push(box, alert, messages.of_state(thing, alert, identity, self.now(), **given))

    def standing(self, box: Box, alert: Alert, thing: Resource) -> bool:
        """Report a flag set's progress to its commit or pull request; whether that changed."""
        subject = alert.subject(thing.key)
        before = (box.of_subject(subject) or Reported()).digest
        if box.type in standing.PULL_REQUESTS:
            base = standing.base_of(self.objects, thing)
            state = standing.of_pull_request(thing, base, alert, self.now())
        else:
            state = standing.of_commit(thing, before, alert, self.now())
        if state is None or state[1] == before:
            return False
        message, after = state
        box.remember(subject, Reported((), after))
        if chooses(alert.spec, Fact(message, thing)):
            box.push(message)
        return True


def _since(thing: Resource | None, now: datetime) -> datetime:
    """Return since when an object fails; `now` if its status does not show it yet."""
    if thing is None or not (status := status_of(thing)).failure:
        return now
    return _moment(status.condition(READY).since, now)


def _due(spec: FlagAlertSpec, thing: Resource | None, reported: Reported, now: datetime) -> Due | None:
    """Return when a `reported` failure is checked next; None: never."""
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
