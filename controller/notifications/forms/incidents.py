"""Messages as tools for incidents and dashboards take them: a failure opens an incident, and its recovery
ends just that one. Pure.

PagerDuty: https://developer.pagerduty.com/docs/events-api-v2
Opsgenie: https://docs.opsgenie.com/docs/alert-api
incident.io: https://api-docs.incident.io/tag/Alert-Events-V2
Alertmanager: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
Sentry: https://develop.sentry.dev/sdk/data-model/envelopes/
Datadog: https://docs.datadoghq.com/api/latest/events/#post-an-event
Grafana: https://grafana.com/docs/grafana/latest/developers/http_api/annotations/
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from controller.api.meta import timestamp
from controller.api.parsing.addresses import opened
from controller.notifications.forms.posts import bearer, changes, details, posted, subject, title

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Post, Target

PAGERDUTY: Final = "https://events.pagerduty.com"
DATADOG: Final = "https://api.datadoghq.com"
OPSGENIE: Final = "https://api.opsgenie.com"
_SOURCE: Final = "flagstaff"
_FIRES: Final = timedelta(days=7)
"""An Alertmanager resolves an alert that is not repeated; ours are sent once."""
_STANDS: Final = timedelta(minutes=5)
"""How long an alert stands in an Alertmanager that is no incident."""
_TEXT: Final = 8_000
"""Characters of a text of Sentry's, which takes 8192."""
_TAG: Final = 200


def pagerduty(message: Message, target: Target) -> Post:
    """What fails triggers, what recovered resolves; everything else is a change event, and alerts no one."""
    address = (target.address or PAGERDUTY).rstrip("/")
    payload: dict[str, Any] = {
        "summary": f"{title(message, target)}: {message.message}"[:1024],
        "source": title(message, target),
        "timestamp": message.time,
        "custom_details": details(message),
    }
    content: dict[str, Any] = {"routing_key": target.token, "payload": payload}
    if message.state is None:
        return posted(f"{address}/v2/change/enqueue", message, content)
    payload |= {"severity": "error", "component": message.kind, "class": message.reason}
    action = "trigger" if message.state == "failing" else "resolve"
    content |= {"event_action": action, "dedup_key": subject(message, target)[:255], "client": _SOURCE}
    return posted(f"{address}/v2/enqueue", message, content)


def opsgenie(message: Message, target: Target) -> Post:
    """An alert with an alias, by which its recovery closes it."""
    address = f"{(target.address or OPSGENIE).rstrip('/')}/v2/alerts"
    alias = subject(message, target)[:512] if message.state else message.key
    headers = {"Authorization": f"GenieKey {target.token}"}
    if message.state == "recovered":
        content = {"source": _SOURCE, "note": message.message}
        url = f"{address}/{quote(alias, safe='')}/close?identifierType=alias"
        return posted(url, message, content, **headers)
    created = {
        "message": f"{title(message, target)}: {message.reason}"[:130],
        "alias": alias,
        "description": message.message,
        "details": details(message),
        "entity": title(message, target)[:512],
        "source": _SOURCE,
        "tags": [message.kind, message.severity],
        "priority": {"error": "P3", "warning": "P4"}.get(message.severity, "P5"),
    }
    return posted(address, message, created, **headers)


def incidentio(message: Message, target: Target) -> Post:
    """An alert with a key, by which its recovery resolves it."""
    incident = message.state is not None
    content = {
        "title": f"{title(message, target)}: {message.reason}",
        "description": message.message,
        "status": "resolved" if message.state == "recovered" else "firing",
        "deduplication_key": subject(message, target) if incident else message.key,
        "metadata": {"severity": message.severity, "kind": message.kind, "name": message.name}
        | {"namespace": target.namespace}
        | details(message),
    }
    return posted(target.address, message, content, **bearer(target))


def alertmanager(message: Message, target: Target) -> Post:
    """An alert that stands until its recovery, whose labels are the same; what is no incident stands for
    minutes.
    """
    began = datetime.fromisoformat(message.time)
    labels = {
        "alertname": f"Flagstaff{message.kind}" + ("Failing" if message.state else message.reason),
        "severity": "error" if message.state else message.severity,
        "kind": message.kind,
        "name": message.name,
        "namespace": target.namespace,
        "alert": message.alert,
    }
    ends = {"failing": began + _FIRES, "recovered": began}.get(message.state or "", began + _STANDS)
    content: dict[str, Any] = {
        "labels": {name: text for name, text in labels.items() if text},
        "annotations": {"message": message.message, **details(message)},
        "endsAt": timestamp(ends),
    }
    if message.state != "recovered":
        content["startsAt"] = message.time
    return posted(target.address, message, [content], **bearer(target))


def grafana(message: Message, target: Target) -> Post:
    """An annotation."""
    content = {
        "time": round(datetime.fromisoformat(message.time).timestamp() * 1000),
        "text": f"{title(message, target)}: {_said(message)}",
        "tags": [
            _SOURCE,
            f"kind:{message.kind}",
            f"name:{message.name}",
            f"namespace:{target.namespace}",
            f"reason:{message.reason}",
            f"severity:{message.severity}",
        ],
    }
    return posted(target.address, message, content, **bearer(target))


def datadog(message: Message, target: Target) -> Post:
    """An event; those of one object are aggregated."""
    alert_type = {"failing": "error", "recovered": "success"}.get(message.state or "", message.severity)
    content = {
        "title": f"{title(message, target)}: {message.reason}"[:100],
        "text": _said(message)[:4_000],
        "alert_type": alert_type,
        "aggregation_key": subject(message, target)[:100],
        "date_happened": round(datetime.fromisoformat(message.time).timestamp()),
        "tags": [
            f"{name}:{text}"[:200]
            for name, text in (
                ("kind", message.kind),
                ("name", message.name),
                ("namespace", target.namespace),
                ("reason", message.reason),
                ("source", _SOURCE),
            )
        ],
    }
    address = f"{(target.address or DATADOG).rstrip('/')}/api/v1/events"
    return posted(address, message, content, **{"DD-API-KEY": target.token})


def sentry(message: Message, target: Target) -> Post:
    """An event in an envelope; one that is sent again has the same id, and is taken once."""
    dsn, event_id = opened(target.address), message.key[:32]
    text = f"{title(message, target)}: {_said(message)}"
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
        "logger": _SOURCE,
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
    return posted(dsn.url, message, body.encode(), **headers)


def _said(message: Message) -> str:
    """The message, with what changed."""
    lines = changes(message)
    return f"{message.message}\n{lines}" if lines else message.message
