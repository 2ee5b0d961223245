"""Messages of alerts: of an Event, or of an object's state where its Event was lost. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal

from controller.api import flagprovider
from controller.api.flagprovider import Message
from controller.api.kinds import status_of
from controller.api.objects.conditions import READY
from controller.api.objects.meta import API_VERSION, GROUP, timestamp
from controller.api.objects.provenance import AUTHOR, CHANGES, DIFFERENCES, LINK, PAGE, SUBJECT
from controller.api.parsing.message_templates import Words
from controller.runtime.event import Severity
from evaluator.flags.model import DIGEST_KEY, REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.events.alerts.alert_selection import Alert
    from controller.runtime.event import Event

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
    if event.severity is not Severity.WARNING:
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
    return Words(text).safe_substitute(words, namespace=namespace)[:MOST_FILLED]


def _elsewhere(key: ObjectKey, alert: Alert) -> str | None:
    return None if key.namespace == alert.resource.namespace else key.namespace


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _metadata(revision: str, digest: str, summary: str, more: Mapping[str, str]) -> dict[str, str]:
    metadata = {**more, REVISION_KEY: revision, DIGEST_KEY: digest, SUMMARY: summary}
    return {name: text for name, text in metadata.items() if text and name != DIFFERENCES}
