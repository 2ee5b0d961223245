"""Messages as events of Sentry: what fails and what then recovers is one issue. Pure.

Envelopes: https://develop.sentry.dev/sdk/data-model/envelopes/
Events: https://develop.sentry.dev/sdk/data-model/event-payloads/
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.notifications.addresses import AddressRefused, split
from controller.notifications.forms.posts import Post, changes, details, subject, title

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target

TYPE: Final = "sentry"
_TEXT: Final = 8_000
"""Characters of a text; Sentry takes 8192."""
_TAG: Final = 200


class Dsn(NamedTuple):
    """What a DSN says."""

    url: str
    """Where envelopes are posted."""
    key: str


def opened(dsn: str) -> Dsn:
    """Raises AddressRefused for what is no DSN."""
    parts = split(dsn)
    prefix, _, project = parts.path.rstrip("/").rpartition("/")
    key = parts.username or ""
    if not (key.isascii() and key.isalnum() and project.isdigit()) or parts.password or parts.query:
        raise AddressRefused("it must be a DSN, such as https://KEY@HOST/PROJECT")
    host = parts.netloc.rpartition("@")[2]
    return Dsn(f"{parts.scheme}://{host}{prefix}/api/{project}/envelope/", key)


def sentry(message: Message, target: Target) -> Post:
    """An event in an envelope; one that is sent again has the same id, and is taken once."""
    dsn, event_id = opened(target.address), message.key[:32]
    lines = changes(message)
    text = f"{title(message, target)}: {message.message}" + (f"\n{lines}" if lines else "")
    tags = {
        "kind": message.kind,
        "name": message.name,
        "namespace": target.namespace,
        "reason": message.reason,
    }
    event = {
        "event_id": event_id,
        "timestamp": message.time,
        "platform": "other",
        "level": message.severity,
        "logger": "flagstaff",
        "message": {"formatted": text[:_TEXT]},
        "tags": {name: value[:_TAG] for name, value in tags.items() if value},
        "extra": details(message),
        # Without a state of its own it is an issue of its reason.
        "fingerprint": [subject(message, target), *([] if message.state else [message.reason])],
    }
    if target.spec.channel:
        event["environment"] = target.spec.channel[:64]
    parts = ({"event_id": event_id}, {"type": "event"}, event)
    body = "\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in parts)
    authorised = f"Sentry sentry_version=7, sentry_client=flagstaff/1, sentry_key={dsn.key}"
    headers = {"Content-Type": "application/x-sentry-envelope", "X-Sentry-Auth": authorised}
    return Post(dsn.url, body.encode(), headers | {"Idempotency-Key": message.key})
