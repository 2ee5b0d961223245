"""Messages as chats of one's own servers show them: text, by an account of theirs. Pure.

Matrix: https://spec.matrix.org/latest/client-server-api/#put_matrixclientv3roomsroomidsendeventtypetxnid
Zulip: https://zulip.com/api/send-message
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from controller.notifications.forms.posts import Post, basic, bearer, plain, posted, title

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target

_TOPIC: Final = 60
"""Characters of a topic."""
_CONTENT: Final = 9_000
"""Characters of a text; Zulip takes 10000."""
_FENCE: Final = "`" * 12
"""Longer than any that a text is likely to hold: within it nothing is markup or a mention."""


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
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Authorization": basic(target.token),
        "Idempotency-Key": message.key,
    }
    return Post(f"{target.address.rstrip('/')}/api/v1/messages", urlencode(fields).encode(), headers)
