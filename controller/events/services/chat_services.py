"""Formats messages for chats. Pure.

Slack: https://docs.slack.dev/reference/block-kit/blocks/section-block Discord:
https://discord.com/developers/docs/resources/webhook#execute-webhook Microsoft Teams:
https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using Google
Chat: https://developers.google.com/workspace/chat/api/reference/rest/v1/cards
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from controller.api.flagprovider import Message
    from controller.events.services.notice import Notice, Post, ProviderTarget

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
