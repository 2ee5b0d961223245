"""What an alert reports of an object: each incident once, again where the alert asks for it, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from controller.api.kinds import status_of
from controller.api.meta import LINK, ObjectKey, Resource
from controller.api.status import READY
from controller.events import alert_messages
from controller.events.alert_messages import with_waiting_time
from controller.events.alert_selection import Alert, Facts, wants
from controller.events.commit_pages import link_of
from controller.events.flag_set_progress import (
    CHANGE_REQUESTS,
    COMMITS,
    FOLLOWING_STATUS,
    base_of,
    change_request_state,
    commit_states,
    ended_states,
)
from controller.events.provider_outbox import ProviderOutbox, Recheck, Reported, shorten
from evaluator.flags.model import REVISION_KEY
from evaluator.host.times import parse_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controller.api.flagalert import FlagAlertSpec
    from controller.api.flagprovider import Message
    from controller.runtime.cache import Cache
    from controller.runtime.event import Event


@dataclass(frozen=True, slots=True)
class AlertReporter:
    """Puts messages into the outboxes of providers, where they wait to be sent."""

    objects: Cache
    now: Callable[[], datetime]

    def compare(self, box: ProviderOutbox, alert: Alert, resource: Resource) -> None:
        """Report what was not reported yet about one object."""
        if box.type in FOLLOWING_STATUS:
            self.report_progress(box, alert, resource)
            return
        subject = alert.subject(resource.key)
        reported, status = box.of_subject(subject), status_of(resource)
        digest = status.content[1]
        if status.failure:
            self.report_failure(box, alert, resource)
        elif reported is not None and reported.failures:
            if status.is_ready:
                self.report_recovery(box, alert, resource)
        elif reported is not None and reported.digest and digest and shorten(digest) != reported.digest:
            message = alert_messages.of_state(resource, alert, digest, self.now())
            if wants(alert.spec, Facts(message, resource)):
                box.push(self._complete(message, alert, box.type))
            box.remember(subject, Reported((), shorten(digest)))
        elif reported is None and digest:
            # States from before the alert are not reported.
            box.remember(subject, Reported((), shorten(digest)))

    def report(self, boxes: Iterable[ProviderOutbox], alert: Alert, event: Event) -> None:
        """Queue the Event's message in each outbox, unless its incident was already reported there."""
        # Commits and change requests receive the state that the object's status shows.
        boxes = [box for box in boxes if box.type not in FOLLOWING_STATUS]
        if not boxes:
            return
        message = alert_messages.of_event(event, alert)
        facts = Facts(message, self.objects.get(event.object), event.flags, event.ends)
        # Recipients of a failure receive its end, whatever else they select.
        wanted = event.reason != alert_messages.RECOVERED and wants(alert.spec, facts)
        for box in boxes:
            if event.reason == alert_messages.RECOVERED:
                self._report_recovery_event(box, alert, event, message)
            else:
                self._report_event(box, alert, event, facts, wanted=wanted)

    def _report_recovery_event(
        self, box: ProviderOutbox, alert: Alert, event: Event, message: Message
    ) -> None:
        subject = alert.subject(event.object)
        reported = box.of_subject(subject) or Reported()
        box.rechecks.pop(subject, None)
        if reported.failures:
            message = message.model_copy(update={"state": "recovered"})
            box.push(self._complete(message, alert, box.type))
            box.remember(subject, Reported((), shorten(event.digest) or reported.digest))

    def _report_event(
        self, box: ProviderOutbox, alert: Alert, event: Event, facts: Facts, *, wanted: bool
    ) -> None:
        subject, message = alert.subject(event.object), facts.message
        reported = box.of_subject(subject) or Reported()
        digest = shorten(event.digest) or reported.digest
        failures, reported_at = reported.failures, reported.reported_at
        if wanted:
            if message.severity == "error":
                if event.failure in failures:
                    return
                recheck = _next_recheck(alert.spec, facts.subject, reported, event.time)
                if recheck is not None and recheck.first and not recheck.is_due(event.time):
                    box.remember(subject, Reported(failures, digest))
                    box.rechecks[subject] = recheck
                    return
                message = message.model_copy(update={"state": "failing"})
                failures, reported_at = (*failures, event.failure), timestamp(event.time)
            box.push(self._complete(message, alert, box.type))
        # Remember unselected messages too, so that the next leader does not report them.
        after = Reported(failures, digest, reported_at)
        box.remember(subject, after)
        self._schedule(box, alert, subject, facts.subject, after)

    def _complete(self, message: Message, alert: Alert, type_: str) -> Message:
        """Return the message with the page of its commit, the template's words, and its group."""
        namespace = message.namespace or alert.resource.namespace
        key = ObjectKey(message.kind, namespace, message.name)
        if page := link_of(self.objects, key, message.metadata.get(REVISION_KEY, "")):
            message = message.model_copy(update={"metadata": message.metadata | {LINK: page}})
        if alert.spec.template is not None:
            words = alert_messages.fill(alert.spec.template, message, namespace)
            message = message.model_copy(update={"message": words})
        return with_waiting_time(message, alert.spec, type_)

    def report_failure(self, box: ProviderOutbox, alert: Alert, resource: Resource) -> None:
        """Report a failing object if it fails for long enough, and again when a repetition is due."""
        subject, reason, now = alert.subject(resource.key), status_of(resource).failure, self.now()
        reported = box.of_subject(subject) or Reported()
        again = reason in reported.failures
        recheck = _next_recheck(alert.spec, resource, reported if again else Reported(), now)
        if recheck is not None and not recheck.is_due(now):
            box.rechecks[subject] = recheck
            return
        if again and recheck is None:
            return
        repeated = f" after {reported.reported_at}" if again else ""
        identity = f"{reason} {_failing_since(resource, now)}{repeated}"
        message = alert_messages.of_state(resource, alert, identity, now, severity="error", state="failing")
        if not wants(alert.spec, Facts(message, resource)):
            box.rechecks.pop(subject, None)
            return
        box.push(self._complete(message, alert, box.type))
        failures = reported.failures if again else (*reported.failures, reason)
        after = Reported(failures, reported.digest, timestamp(now))
        box.remember(subject, after)
        self._schedule(box, alert, subject, resource, after)

    def _schedule(
        self, box: ProviderOutbox, alert: Alert, subject: str, resource: Resource | None, reported: Reported
    ) -> None:
        """Schedule the next repeated report of a failure."""
        if reported.failures:
            box.rechecks.pop(subject, None)
            if (recheck := _next_recheck(alert.spec, resource, reported, self.now())) is not None:
                box.rechecks[subject] = recheck

    def report_recovery(self, box: ProviderOutbox, alert: Alert, resource: Resource) -> None:
        """Report the recovery of an object whose failure was reported."""
        subject = alert.subject(resource.key)
        reported = box.of_subject(subject) or Reported()
        box.rechecks.pop(subject, None)
        self._end(box, alert, resource, "works", reason=alert_messages.RECOVERED)
        box.remember(subject, Reported((), shorten(status_of(resource).content[1]) or reported.digest))

    def report_deletion(self, box: ProviderOutbox, alert: Alert, resource: Resource) -> None:
        """Report the deletion of an object, which ends its failure; `resource` is its last known state."""
        subject = alert.subject(resource.key)
        if (box.of_subject(subject) or Reported()).failures:
            self._end(
                box, alert, resource, "gone", reason="Deleted", message="it was deleted while it failed"
            )
        if box.type in COMMITS:
            before = (box.of_subject(subject) or Reported()).digest
            ended = ended_states(resource, before, alert, self.now())
            self._push_wanted(box, alert, resource, ended)
        box.remember(subject, None)

    def _end(
        self, box: ProviderOutbox, alert: Alert, resource: Resource, outcome: str, **fields: str
    ) -> None:
        identity = f"{resource.resource_version} {outcome}"
        message = alert_messages.of_state(resource, alert, identity, self.now(), state="recovered", **fields)
        box.push(self._complete(message, alert, box.type))

    def report_progress(self, box: ProviderOutbox, alert: Alert, resource: Resource) -> bool:
        """Report the state of a flag set or rollout to its commits or change request; return whether it has
        changed.
        """
        subject = alert.subject(resource.key)
        before = (box.of_subject(subject) or Reported()).digest
        if box.type in CHANGE_REQUESTS:
            base = base_of(self.objects, resource)
            state = change_request_state(resource, base, alert, self.now())
            messages, after = ([], before) if state is None else ([state[0]], state[1])
        else:
            messages, after = commit_states(self.objects, resource, before, alert, self.now())
        if after == before and not messages:
            return False
        box.remember(subject, Reported((), after))
        self._push_wanted(box, alert, resource, messages)
        return True

    def _push_wanted(
        self, box: ProviderOutbox, alert: Alert, resource: Resource, messages: Iterable[Message]
    ) -> None:
        for message in messages:
            if wants(alert.spec, Facts(message, resource)):
                box.push(message)


def _failing_since(resource: Resource | None, now: datetime) -> datetime:
    """Return since when an object fails; `now` if its status does not show it yet."""
    if resource is None or not (status := status_of(resource)).failure:
        return now
    return parse_time(status.condition(READY).since) or now


def _next_recheck(
    spec: FlagAlertSpec, resource: Resource | None, reported: Reported, now: datetime
) -> Recheck | None:
    """Return when a `reported` failure is checked next; None: never."""
    since = _failing_since(resource, now)
    if not reported.failures:
        seconds, start = spec.lasting or 0.0, since
    elif spec.repeat_interval is None:
        return None
    else:
        seconds, start = spec.repeat_interval, parse_time(reported.reported_at) or since
    return Recheck(start + timedelta(seconds=seconds), first=not reported.failures, span=seconds)
