"""Messages as chats show them. Pure.

Slack: https://docs.slack.dev/reference/block-kit/blocks/section-block
Discord: https://discord.com/developers/docs/resources/webhook#execute-webhook
Microsoft Teams: https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
Google Chat: https://developers.google.com/workspace/chat/api/reference/rest/v1/cards
Mattermost: https://developers.mattermost.com/integrate/reference/message-attachments/
Rocket.Chat: https://docs.rocket.chat/docs/integrations
Matrix: https://spec.matrix.org/latest/client-server-api/#put_matrixclientv3roomsroomidsendeventtypetxnid
Zulip: https://zulip.com/api/send-message
"""

from __future__ import annotations

import html
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from controller.notifications.forms.posts import Post, basic, bearer, changes, facts, plain, posted, title

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target

_RED: Final = 0xD32F2F
_ORANGE: Final = 0xED6C02
_GREEN: Final = 0x2E7D32
_FIELD: Final = 1_000
"""Characters of a field: Discord takes 1024."""
_SECTION: Final = 3_000
"""Characters of a block of Slack's."""
_FIELDS: Final = 2_000
"""Characters of a field in one."""
_DISCORD: Final = 4_000
"""Characters of its text; it takes 4096, and 6000 in all."""
_TOPIC: Final = 60
"""Characters of a topic."""
_CONTENT: Final = 9_000
"""Characters of a text; Zulip takes 10000."""
_FENCE: Final = "`" * 12
"""Longer than any that a text is likely to hold: within it nothing is markup or a mention."""


def slack(message: Message, target: Target) -> Post:
    """Blocks, by an incoming webhook, or as a bot by chat.postMessage."""
    texts = [f"*{_escaped(title(message, target))}*\n{_escaped(message.message)}"[:_SECTION]]
    if lines := _escaped(changes(message)):
        texts.append(f"```\n{_cut(lines, _SECTION - 10)}\n```")
    fields = [_mrkdwn(f"*{name}*\n{_escaped(text)}"[:_FIELDS]) for name, text in facts(message).items()]
    blocks: list[dict[str, Any]] = [{"type": "section", "text": _mrkdwn(each)} for each in texts]
    attachment = {
        "color": f"#{_colour(message):06X}",
        "fallback": _escaped(_fallback(message, target)),
        "blocks": [*blocks, {"type": "section", "fields": fields}],
    }
    content = {"attachments": [attachment], **_sender(target)}
    return posted(target.address, message, content, **bearer(target))


def rocket(message: Message, target: Target) -> Post:
    """An attachment, in the older form of Slack's webhooks."""
    attachment = _attachment(message, target, str)
    return posted(target.address, message, {"attachments": [attachment], **_sender(target)})


def mattermost(message: Message, target: Target) -> Post:
    """An attachment, too; the text mentions no user, whatever it says."""
    attachment = _attachment(message, target, _unmentioned)
    return posted(target.address, message, {"attachments": [attachment], **_sender(target)})


def discord(message: Message, target: Target) -> Post:
    """An embed; the text mentions no user, whatever it says."""
    fields = [
        {"name": name, "value": text[:_FIELD], "inline": False} for name, text in facts(message).items()
    ]
    embed = {
        "title": title(message, target)[:256],
        "description": _text(message)[:_DISCORD],
        "color": _colour(message),
        "timestamp": message.time,
        "fields": fields,
    }
    username = {"username": target.spec.username[:80]} if target.spec.username else {}
    content = {"embeds": [embed], "allowed_mentions": {"parse": []}, **username}
    return posted(target.address, message, content)


def msteams(message: Message, target: Target) -> Post:
    """An Adaptive Card, as the webhooks of workflows take it."""
    colour = {"error": "Attention", "warning": "Warning"}.get(message.severity, "Good")
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": title(message, target), "size": "Large", "color": colour, "wrap": True},
        {"type": "TextBlock", "text": message.message, "wrap": True},
    ]
    if changes(message):
        lines = changes(message).replace("\n", "\n\n")
        body.append({"type": "TextBlock", "text": lines, "fontType": "Monospace", "wrap": True})
    entries = [{"title": name, "value": text} for name, text in facts(message).items()]
    body.append({"type": "FactSet", "facts": entries})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return posted(target.address, message, {"type": "message", "attachments": [attachment]})


def googlechat(message: Message, target: Target) -> Post:
    """A card; its text is a kind of HTML."""
    colour = f"#{_colour(message):06X}"
    texts = [f'<font color="{colour}">{_escaped(message.message)}</font>']
    if changes(message):
        texts.append(_escaped(changes(message)).replace("\n", "<br>"))
    widgets: list[dict[str, Any]] = [{"textParagraph": {"text": each}} for each in texts]
    widgets += [
        {"decoratedText": {"topLabel": name, "text": _escaped(text), "wrapText": True}}
        for name, text in facts(message).items()
    ]
    card = {
        "header": {"title": title(message, target), "subtitle": message.severity},
        "sections": [{"widgets": widgets}],
    }
    content = {"cardsV2": [{"cardId": message.key[:16], "card": card}]}
    return posted(target.address, message, content)


def matrix(message: Message, target: Target) -> Post:
    """An event in a room, whose transaction is the message's key: the server takes it once."""
    room = quote(target.spec.channel or "", safe="")
    address = target.address.rstrip("/")
    url = f"{address}/_matrix/client/v3/rooms/{room}/send/m.room.message/{message.key}"
    text = f"{title(message, target)}: {plain(message)}"
    # What is mentioned stands in m.mentions alone, where it is there.
    content = {"msgtype": "m.text", "body": text, "m.mentions": {}}
    return replace(posted(url, message, content, **bearer(target)), method="PUT")


def zulip(message: Message, target: Target) -> Post:
    """A message of a bot, in the topic that the channel names behind a slash, or in one of the object."""
    channel, _, topic = (target.spec.channel or "").partition("/")
    fields = {
        "type": "stream",
        "to": channel,
        "topic": (topic or title(message, target))[:_TOPIC],
        "content": f"**{title(message, target)}**\n{_FENCE}text\n{plain(message)[:_CONTENT]}\n{_FENCE}",
    }
    url, content = f"{target.address.rstrip('/')}/api/v1/messages", urlencode(fields).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": basic(target.token)}
    return posted(url, message, content, **headers)


def _mrkdwn(text: str) -> dict[str, str]:
    return {"type": "mrkdwn", "text": text}


def _cut(text: str, most: int) -> str:
    """Whole lines of it."""
    return text if len(text) <= most else text[: most - 2].rpartition("\n")[0] + "\n…"


def _attachment(message: Message, target: Target, clean: Callable[[str], str]) -> dict[str, Any]:
    return {
        "color": f"#{_colour(message):06X}",
        "author_name": title(message, target),
        "text": clean(_text(message)),
        "fallback": clean(_fallback(message, target)),
        "mrkdwn_in": ["text"],
        "fields": [
            {"title": name, "value": clean(text), "short": False} for name, text in facts(message).items()
        ],
    }


def _sender(target: Target) -> dict[str, str]:
    given = {"channel": target.spec.channel, "username": target.spec.username}
    return {name: text for name, text in given.items() if text}


def _text(message: Message) -> str:
    lines = changes(message)
    return f"{message.message}\n```\n{lines}\n```" if lines else message.message


def _fallback(message: Message, target: Target) -> str:
    """For phones' notices, and readers that show no attachments."""
    return f"{title(message, target)}: {message.message}"


def _unmentioned(text: str) -> str:
    """An invisible space keeps `@name` from being a mention."""
    return text.replace("@", "@\u200b")


def _escaped(text: str) -> str:
    """Without the characters of markup; by those of Slack a text would mention everybody."""
    return html.escape(text, quote=False)


def _colour(message: Message) -> int:
    return {"error": _RED, "warning": _ORANGE}.get(message.severity, _GREEN)
