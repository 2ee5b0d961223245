"""The request format of each provider type: chats, incident tools, and formats that contain Flux's Event.
Pure.

Slack: https://docs.slack.dev/reference/block-kit/blocks/section-block
Discord: https://discord.com/developers/docs/resources/webhook#execute-webhook
Microsoft Teams:
https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
Google Chat: https://developers.google.com/workspace/chat/api/reference/rest/v1/cards

An incident tool or dashboard is told of a failure, which opens an incident, and of its recovery, which closes
it.

PagerDuty: https://developer.pagerduty.com/docs/events-api-v2
Opsgenie: https://docs.opsgenie.com/docs/alert-api
Alertmanager: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
Grafana: https://grafana.com/docs/grafana/latest/developers/http_api/annotations/

CloudEvents 1.0: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

from __future__ import annotations

import hashlib
import hmac
import html
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from controller.events.flag_set_progress import CHANGE_REQUESTS
from controller.events.git_servers import CommentThread, commit_status
from controller.events.notice import Notice, Post, ProviderTarget
from controller.events.senders import email
from evaluator.host.times import read_time, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.flagprovider import Message


_COLOURS: Final = {"error": 0xD32F2F, "warning": 0xED6C02, "info": 0x2E7D32}
"""Colours by severity: red, orange, green."""
_SECTION: Final = 3_000
"""Most characters of a block of Slack."""


def slack(notice: Notice) -> Post:
    """Return blocks for an incoming webhook, or for a bot's chat.postMessage."""
    texts = [f"*{_escape(notice.title)}*\n{_escape(notice.message.message)}"[:_SECTION]]
    if lines := _escape(notice.changes):
        texts.append(f"```\n{_cut(lines, _SECTION - 10)}\n```")
    fields = [_mrkdwn(f"*{name}*\n{_escape(text)}"[:2_000]) for name, text in notice.facts.items()]
    blocks: list[dict[str, Any]] = [{"type": "section", "text": _mrkdwn(text)} for text in texts]
    attachment = {
        "color": _colour(notice.message),
        "fallback": _escape(_fallback(notice)),
        "blocks": [*blocks, {"type": "section", "fields": fields}],
    }
    target = notice.target
    return notice.post({"attachments": [attachment], **_sender(target)}, **target.bearer)


def discord(notice: Notice) -> Post:
    """Return an embed whose text cannot mention users. Discord's size limit is above ours."""
    message, name = notice.message, notice.target.spec.username
    embed = {
        "title": notice.title[:256],
        "description": _text(notice)[:4_000],
        "color": _COLOURS[message.severity],
        "timestamp": message.time,
        "fields": [
            {"name": name, "value": text[:1_000], "inline": False} for name, text in notice.facts.items()
        ],
    }
    username = {"username": name[:80]} if name else {}
    return notice.post({"embeds": [embed], "allowed_mentions": {"parse": []}, **username})


def msteams(notice: Notice) -> Post:
    """Return an Adaptive Card for a workflow's webhook."""
    message = notice.message
    colour = {"error": "Attention", "warning": "Warning"}.get(message.severity, "Good")
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": notice.title, "size": "Large", "color": colour, "wrap": True},
        {"type": "TextBlock", "text": message.message, "wrap": True},
    ]
    if notice.changes:
        lines = notice.changes.replace("\n", "\n\n")
        body.append({"type": "TextBlock", "text": lines, "fontType": "Monospace", "wrap": True})
    entries = [{"title": name, "value": text} for name, text in notice.facts.items()]
    body.append({"type": "FactSet", "facts": entries})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return notice.post({"type": "message", "attachments": [attachment]})


def googlechat(notice: Notice) -> Post:
    """Return a card; its text is a subset of HTML."""
    message = notice.message
    texts = [f'<font color="{_colour(message)}">{_escape(message.message)}</font>']
    if notice.changes:
        texts.append(_escape(notice.changes).replace("\n", "<br>"))
    widgets: list[dict[str, Any]] = [{"textParagraph": {"text": text}} for text in texts]
    widgets += [
        {"decoratedText": {"topLabel": name, "text": _escape(text), "wrapText": True}}
        for name, text in notice.facts.items()
    ]
    header = {"title": notice.title, "subtitle": message.severity}
    card = {"header": header, "sections": [{"widgets": widgets}]}
    return notice.post({"cardsV2": [{"cardId": message.key[:16], "card": card}]})


def _mrkdwn(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": text}


def _cut(text: str, most: int) -> str:
    """Cut the text after a whole line."""
    return text if len(text) <= most else text[: most - 2].rpartition("\n")[0] + "\n…"


def _sender(target: ProviderTarget) -> dict[str, str]:
    given = {"channel": target.spec.channel, "username": target.spec.username}
    return {name: text for name, text in given.items() if text}


def _text(notice: Notice) -> str:
    said, lines = notice.message.message, notice.changes
    return f"{said}\n```\n{lines}\n```" if lines else said


def _fallback(notice: Notice) -> str:
    """Return a short text for phone notifications and clients without attachments."""
    return f"{notice.title}: {notice.message.message}"


def _escape(text: str) -> str:
    """Escape markup: Slack's could mention everybody."""
    return html.escape(text, quote=False)


def _colour(message: Message) -> str:
    return f"#{_COLOURS[message.severity]:06X}"


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
    message, began = notice.message, read_time(notice.message.time)
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
        "time": round(read_time(message.time).timestamp() * 1000),
        "text": f"{notice.title}: {notice.text}",
        "tags": [_SOURCE, *_tags({**notice.labels, "severity": message.severity})],
    }
    return notice.post(content, **notice.target.bearer)


def _tags(given: Mapping[str, str]) -> list[str]:
    return [f"{name}:{text}" for name, text in given.items()]


@dataclass(frozen=True, slots=True)
class Service:
    """The request format of one provider type, and the meaning of its answers."""

    post: Callable[[Notice], Post]
    server: str = ""
    """URL of the server for a provider without address."""
    refusal: str = ""
    """Text that marks an answer with status 2xx as a refusal."""
    known: str = ""
    """Text in an error answer if the message had arrived before."""
    tested: str = ""
    """Text in an error answer to a test if address and token are right."""


def post_of(message: Message, target: ProviderTarget) -> Post:
    """Return the request that delivers the message."""
    form = SERVICES[target.spec.type]
    given = target if target.address else replace(target, address=form.server)
    return form.post(Notice(message, given))


def is_refusal(target: ProviderTarget, content: bytes) -> bool:
    """Whether an answer with status 2xx is a refusal."""
    refusal = SERVICES[target.spec.type].refusal
    return bool(refusal) and refusal.encode() in b"".join(content.split())


def is_known(target: ProviderTarget, message: Message, content: bytes) -> bool:
    """Whether an error answer means that the message had arrived before, or that a test succeeded."""
    form, said = SERVICES[target.spec.type], b"".join(content.split())
    words = (form.known, "" if message.alert else form.tested)
    return any(word.encode() in said for word in words if word)


def _generic(notice: Notice) -> Post:
    return notice.post(notice.event, **{"Gotk-Component": notice.event["reportingController"]})


def _generic_hmac(notice: Notice) -> Post:
    plain = _generic(notice)
    signature = hmac.new(notice.target.token.encode(), plain.body, hashlib.sha256).hexdigest()
    return replace(plain, headers=plain.headers | {"X-Signature": f"sha256={signature}"})


def _cloudevent(notice: Notice) -> Post:
    """Return a CloudEvent in structured mode: all of it is in the body."""
    content = {**_attributes(notice), "datacontenttype": "application/json", "data": notice.event}
    kind = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    return notice.post(content, **notice.target.bearer, **kind)


def _attributes(notice: Notice) -> dict[str, str]:
    """Return the attributes, all ASCII as names and reasons are; `id` is the same for each retry."""
    message = notice.message
    return {
        "specversion": "1.0",
        "id": message.key,
        "source": f"/namespaces/{notice.target.namespace}/{message.kind.lower()}s/{message.name}",
        "type": f"dev.flagstaff.{message.kind}.{message.reason}",
        "subject": f"{message.kind}/{message.name}",
        "time": message.time,
    }


SERVICES: Final[dict[str, Service]] = {
    "generic": Service(_generic),
    "generic-hmac": Service(_generic_hmac),
    "cloudevents": Service(_cloudevent),
    # The Event that Flux is handed names an object of Flux instead: see flux_events.py.
    "flux": Service(_generic),
    "slack": Service(slack, refusal='"ok":false'),
    "discord": Service(discord),
    "msteams": Service(msteams),
    "googlechat": Service(googlechat),
    "pagerduty": Service(pagerduty, server="https://events.pagerduty.com"),
    "opsgenie": Service(opsgenie, server="https://api.opsgenie.com"),
    "alertmanager": Service(alertmanager),
    "grafana": Service(grafana),
    "email": Service(email),
    # A test is the status of a commit that does not exist.
    "github": Service(commit_status, tested="NocommitfoundforSHA"),
    # GitLab's answer to a status that the commit already has.
    "gitlab": Service(commit_status, known="Cannottransitionstatus", tested="CommitNotFound"),
    **dict.fromkeys(("gitea", "bitbucket", "azuredevops"), Service(commit_status)),
    # An existing comment is edited instead: see deliverer.py.
    **dict.fromkeys(
        sorted(CHANGE_REQUESTS), Service(lambda notice: CommentThread.of_notice(notice).create_request())
    ),
}
"""How each type of provider is sent a message."""
