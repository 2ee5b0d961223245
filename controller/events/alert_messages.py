"""Messages of alerts: of an Event, of an object's state, or of several joined into one. Pure."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from controller.api import flagprovider
from controller.api.flagprovider import SEVERITIES, Message
from controller.api.kinds import status_of
from controller.api.meta import (
    API_VERSION,
    AUTHOR,
    CHANGES,
    DIFFERENCES,
    GROUP,
    LINK,
    PAGE,
    SUBJECT,
    ObjectKey,
    Resource,
)
from controller.api.parsing import MessageTemplate
from controller.api.status import READY
from controller.runtime.event import Event, EventType
from evaluator.flags.model import DIGEST_KEY, REVISION_KEY
from evaluator.host.times import read_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.flagalert import FlagAlertSpec
    from controller.events.alert_selection import Alert


SUMMARY: Final = f"{GROUP}/summary"
RECOVERED: Final = "Recovered"
_TEXT: Final = 2_000
"""Most characters of a message."""
_METADATA: Final = {
    "author": AUTHOR,
    "changes": CHANGES,
    "digest": DIGEST_KEY,
    "link": LINK,
    "page": PAGE,
    "revision": REVISION_KEY,
    "subject": SUBJECT,
    "summary": SUMMARY,
}
_FIELDS: Final = ("alert", "kind", "message", "name", "reason", "severity", "state")
MOST_FILLED: Final = 4_000
"""Most characters of a filled template."""


def of_event(event: Event, alert: Alert) -> Message:
    """Return the message of `alert` about the Event."""
    return Message(
        key=_key(event.key, alert.resource.uid),
        alert=alert.resource.name,
        api_version=event.api_version,
        kind=event.object.kind,
        namespace=_elsewhere(event.object, alert),
        name=event.object.name,
        uid=event.uid,
        severity=severity_of(event),
        reason=event.reason,
        message=event.message[:_TEXT],
        time=timestamp(event.time),
        metadata=_metadata(event.revision, event.digest, alert.spec.summary or "", event.bounded_metadata),
    )


def severity_of(event: Event) -> Literal["info", "warning", "error"]:
    """Return the severity: a Warning about an object that still fails is an `error`."""
    if event.severity is not EventType.WARNING:
        return "info"
    return "error" if event.reason == event.failure else "warning"


def of_state(resource: Resource, alert: Alert, identity: str, now: datetime, **other: Any) -> Message:
    """Return a message of the object's conditions; `other` replaces fields, `identity` is part of the key."""
    status = status_of(resource)
    ready = status.condition(READY)
    message = Message(
        key=_key(resource.uid, identity, alert.resource.uid),
        alert=alert.resource.name,
        api_version=resource.api_version,
        kind=resource.key.kind,
        namespace=_elsewhere(resource.key, alert),
        name=resource.name,
        uid=resource.uid,
        severity="info",
        reason=ready.reason or "Unknown",
        message=ready.message[:_TEXT],
        time=timestamp(now),
        metadata=_metadata(*status.content, alert.spec.summary or "", {}),
    )
    return message.model_copy(update=other)


def of_test(resource: Resource, asked: str, now: datetime) -> Message:
    """Return the test message that a person requested of a provider."""
    return Message(
        key=test_key(resource.uid, asked),
        alert="",
        api_version=API_VERSION,
        kind=flagprovider.KIND,
        name=resource.name,
        uid=resource.uid,
        severity="info",
        reason="TestAlert",
        message=f"a test of FlagProvider {resource.namespace}/{resource.name}",
        time=timestamp(now),
    )


def test_key(uid: str, asked: str) -> str:
    """Return the key of a test message of the provider with this uid."""
    return _key(uid, "test", asked)


def event_json(message: Message, namespace: str, instance: str) -> dict[str, Any]:
    """Return Flux's Event (event.toolkit.fluxcd.io/v1beta1), as its notification-controller posts it."""
    return {
        "involvedObject": {
            "apiVersion": message.api_version,
            "kind": message.kind,
            "namespace": namespace,
            "name": message.name,
            "uid": message.uid,
        },
        # Flux has only `info` and `error`.
        "severity": "error" if message.severity == "warning" else message.severity,
        "timestamp": message.time,
        "message": message.message,
        "reason": message.reason,
        "metadata": {**message.metadata, f"{GROUP}/idempotency-key": message.key}
        | ({f"{GROUP}/alert": message.alert} if message.alert else {}),
        "reportingController": "flagstaff-controller",
        "reportingInstance": instance,
    }


def fill(text: str, message: Message, namespace: str) -> str:
    """Return the template filled with the message's fields; absent fields are empty."""
    words = {name: message.metadata.get(key, "") for name, key in _METADATA.items()}
    words |= {name: getattr(message, name) or "" for name in _FIELDS}
    return MessageTemplate(text).safe_substitute(words, namespace=namespace)[:MOST_FILLED]


def _elsewhere(key: ObjectKey, alert: Alert) -> str | None:
    return None if key.namespace == alert.resource.namespace else key.namespace


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _metadata(revision: str, digest: str, summary: str, more: Mapping[str, str]) -> dict[str, str]:
    metadata = {**more, REVISION_KEY: revision, DIGEST_KEY: digest, SUMMARY: summary}
    return {name: text for name, text in metadata.items() if text and name != DIFFERENCES}


KEY: Final = 16
"""Characters of a key that distinguish it from another."""
INCIDENTS: Final = frozenset({"pagerduty", "opsgenie", "alertmanager"})
"""Provider types that identify an incident by its object: its messages are never grouped."""
_LINES: Final = 20
MOST_JOINED: Final = 500
"""Most messages that are joined with one."""


def with_waiting_time(message: Message, spec: FlagAlertSpec, type_: str) -> Message:
    """Return the message with its group's waiting time, for a provider of this type."""
    if spec.group_wait is None or (type_ in INCIDENTS and message.state is not None):
        return message
    # All but the revision are fields of the message.
    revision = message.metadata.get(REVISION_KEY, "")
    group = "/".join((message.state or "", *(getattr(message, name, revision) for name in spec.group_by)))
    after = read_time(message.time) + timedelta(seconds=spec.group_wait)
    return message.model_copy(update={"group": group, "after": timestamp(after)})


def group_of(message: Message, pending: Iterable[Message]) -> Message | None:
    """Return the waiting message to join with; None if the message would overtake one of its object."""
    if message.group is None:
        return None
    group = None
    for waiting in pending:
        if (
            (waiting.alert, waiting.group) == (message.alert, message.group)
            and waiting.after is not None
            and waiting.after > message.time
            and len(waiting.others) < MOST_JOINED
        ):
            group = waiting
        elif waiting.alert == message.alert and _is_about(waiting, _object(message)):
            group = None
    return group


def join(group: Message, message: Message) -> Message:
    """Join two messages; the result keeps the key, the object and the time of the first."""
    count = len(group.others) + 1
    lines = group.message if group.others else _line(group)
    if count < _LINES:
        lines = f"{lines}\n{_line(message)}"
    else:
        lines = "\n".join((*lines.split("\n")[: _LINES - 1], f"… and {count + 2 - _LINES} more"))
    changes = "\n".join(text for part in (group, message) if (text := part.metadata.get(CHANGES)))
    metadata = message.metadata | group.metadata | ({CHANGES: changes[:4_000]} if changes else {})
    objects = group.objects
    if not _is_about(group, _object(message)):
        objects = (*objects, _object(message))
    return group.model_copy(
        update={
            "message": lines,
            "metadata": metadata,
            "others": (*group.others, message.key[:KEY]),
            "objects": objects,
            "severity": max(group.severity, message.severity, key=SEVERITIES.index),
        }
    )


def _object(message: Message) -> str:
    place = f"{message.namespace}/" if message.namespace else ""
    return f"{message.kind}/{place}{message.name}"


def _is_about(message: Message, subject: str) -> bool:
    """Whether the message, or one joined with it, is about the object that `_object` names so."""
    return subject == _object(message) or subject in message.objects


def _line(message: Message) -> str:
    words = message.message.replace("\n", " ")
    return f"{_object(message)}: {words}"[:300]
