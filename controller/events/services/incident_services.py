"""Messages for incident tools and dashboards: a failure opens an incident, its recovery closes it. Pure.

PagerDuty: https://developer.pagerduty.com/docs/events-api-v2
Opsgenie: https://docs.opsgenie.com/docs/alert-api
Alertmanager: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
Grafana: https://grafana.com/docs/grafana/latest/developers/http_api/annotations/
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from controller.api.objects.meta import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.events.services.notice import Notice, Post

_SOURCE: Final = "flagstaff"


def pagerduty(notice: Notice) -> Post:
    """Return a trigger for a failure, a resolve for a recovery, and a change event for anything else."""
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
    """Return an alert; its recovery closes it by the alias."""
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


def alertmanager(notice: Notice) -> Post:
    """Return an alert that fires until its recovery, which has the same labels; a message that is no incident
    fires for five minutes.

    A failure fires for a week: an Alertmanager resolves what is not repeated, and each of ours is sent once.
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
    duration = {"failing": timedelta(days=7), "recovered": timedelta(), None: timedelta(minutes=5)}
    content: dict[str, Any] = {
        "labels": {name: text for name, text in labels.items() if text},
        "annotations": {"message": message.message, **notice.details},
        "endsAt": timestamp(began + duration[message.state]),
    }
    if message.state != "recovered":
        content["startsAt"] = message.time
    return notice.post([content], **notice.target.bearer)


def grafana(notice: Notice) -> Post:
    """Return an annotation."""
    message = notice.message
    content = {
        "time": round(datetime.fromisoformat(message.time).timestamp() * 1000),
        "text": f"{notice.title}: {notice.text}",
        "tags": [_SOURCE, *_tags({**notice.labels, "severity": message.severity})],
    }
    return notice.post(content, **notice.target.bearer)


def _tags(given: Mapping[str, str]) -> list[str]:
    return [f"{name}:{text}" for name, text in given.items()]
