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
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from controller.api.meta import timestamp
from controller.notifications.addresses import AddressRefused, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.notifications.forms.posts import Notice, Post

_SOURCE: Final = "flagstaff"
SENTRY: Final = "sentry"


def pagerduty(notice: Notice) -> Post:
    """What fails triggers, what recovered resolves; everything else is a change event, and alerts no one."""
    message, target = notice.message, notice.target
    payload: dict[str, Any] = {
        "summary": f"{notice.title}: {message.message}"[:1024],
        "source": notice.title,
        "timestamp": message.time,
        "custom_details": notice.details,
    }
    content: dict[str, Any] = {"routing_key": target.token, "payload": payload}
    if message.state is None:
        return notice.post(content, f"{target.base}/v2/change/enqueue")
    payload |= {"severity": "error", "component": message.kind, "class": message.reason}
    action = "trigger" if message.state == "failing" else "resolve"
    content |= {"event_action": action, "dedup_key": notice.subject[:255], "client": _SOURCE}
    return notice.post(content, f"{target.base}/v2/enqueue")


def opsgenie(notice: Notice) -> Post:
    """An alert with an alias, by which its recovery closes it."""
    message, url = notice.message, f"{notice.target.base}/v2/alerts"
    alias = notice.subject[:512] if message.state else message.key
    headers = {"Authorization": f"GenieKey {notice.target.token}"}
    if message.state == "recovered":
        close = f"{url}/{quote(alias, safe='')}/close?identifierType=alias"
        return notice.post({"source": _SOURCE, "note": message.message}, close, **headers)
    created = {
        "message": f"{notice.title}: {message.reason}"[:130],
        "alias": alias,
        "description": message.message,
        "details": notice.details,
        "entity": notice.title[:512],
        "source": _SOURCE,
        "tags": [message.kind, message.severity],
        "priority": {"error": "P3", "warning": "P4"}.get(message.severity, "P5"),
    }
    return notice.post(created, url, **headers)


def incidentio(notice: Notice) -> Post:
    """An alert with a key, by which its recovery resolves it."""
    message = notice.message
    content = {
        "title": f"{notice.title}: {message.reason}",
        "description": message.message,
        "status": "resolved" if message.state == "recovered" else "firing",
        "deduplication_key": notice.subject if message.state else message.key,
        "metadata": {"severity": message.severity} | notice.labels | notice.details,
    }
    return notice.post(content, **notice.target.bearer)


def alertmanager(notice: Notice) -> Post:
    """An alert that stands until its recovery, whose labels are the same; what is no incident stands for
    five minutes. A failure stands for a week: an Alertmanager resolves what is not repeated, and ours are
    sent once.
    """
    message, began = notice.message, datetime.fromisoformat(notice.message.time)
    labels = {
        "alertname": f"Flagstaff{message.kind}" + ("Failing" if message.state else message.reason),
        "severity": "error" if message.state else message.severity,
        "kind": message.kind,
        "name": message.name,
        "namespace": notice.target.namespace,
        "alert": message.alert,
    }
    stands = {"failing": timedelta(days=7), "recovered": timedelta(), None: timedelta(minutes=5)}
    content: dict[str, Any] = {
        "labels": {name: text for name, text in labels.items() if text},
        "annotations": {"message": message.message, **notice.details},
        "endsAt": timestamp(began + stands[message.state]),
    }
    if message.state != "recovered":
        content["startsAt"] = message.time
    return notice.post([content], **notice.target.bearer)


def grafana(notice: Notice) -> Post:
    """An annotation."""
    message = notice.message
    content = {
        "time": round(datetime.fromisoformat(message.time).timestamp() * 1000),
        "text": f"{notice.title}: {notice.text}",
        "tags": [_SOURCE, *_tags({**notice.labels, "severity": message.severity})],
    }
    return notice.post(content, **notice.target.bearer)


def datadog(notice: Notice) -> Post:
    """An event; those of one object are aggregated."""
    message, target = notice.message, notice.target
    content = {
        "title": f"{notice.title}: {message.reason}"[:100],
        "text": notice.text[:4_000],
        "alert_type": {"failing": "error", "recovered": "success", None: message.severity}[message.state],
        "aggregation_key": notice.subject[:100],
        "date_happened": round(datetime.fromisoformat(message.time).timestamp()),
        "tags": [each[:200] for each in _tags({**notice.labels, "source": _SOURCE})],
    }
    return notice.post(content, f"{target.base}/api/v1/events", **{"DD-API-KEY": target.token})


def _tags(given: Mapping[str, str]) -> list[str]:
    return [f"{name}:{text}" for name, text in given.items()]


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


def sentry(notice: Notice) -> Post:
    """An event in an envelope; one that is sent again has the same id, and is taken once."""
    message, target = notice.message, notice.target
    dsn, event_id = opened(target.address), message.key[:32]
    event = {
        "event_id": event_id,
        "timestamp": message.time,
        "platform": "other",
        "level": message.severity,
        "logger": _SOURCE,
        # It takes 8192 characters.
        "message": {"formatted": f"{notice.title}: {notice.text}"[:8_000]},
        "tags": {name: value[:200] for name, value in notice.labels.items() if value},
        "extra": notice.details,
        # Without a state of its own it is an issue of its reason.
        "fingerprint": [notice.subject, *([] if message.state else [message.reason])],
    }
    if target.spec.channel:
        event["environment"] = target.spec.channel[:64]
    parts = ({"event_id": event_id}, {"type": "event"}, event)
    body = "\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in parts)
    authorised = f"Sentry sentry_version=7, sentry_client=flagstaff/1, sentry_key={dsn.key}"
    headers = {"Content-Type": "application/x-sentry-envelope", "X-Sentry-Auth": authorised}
    return notice.post(body.encode(), dsn.url, **headers)
