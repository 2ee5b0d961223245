"""Writes a comment that is there anew, and adds it where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from controller.notifications.forms import comments
from controller.notifications.sending.posting import Answer

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target
    from controller.notifications.sending.senders import Sender

_REFUSED = 422
"""The status of what is not tried again."""


async def upsert(sender: Sender, message: Message, target: Target) -> Answer:
    """What came of it: of the last request that was needed."""
    thread, timeout = comments.thread_of(message, target), target.spec.timeout
    if comments.CHANGE_REQUEST not in message.metadata:
        # A test is of no pull request: whether the address is right, and the token is taken.
        return await sender.send(thread.exists(), timeout, target.way)
    for page in range(1, comments.MOST_PAGES + 1):
        answer = await sender.send(thread.listed(page), timeout, target.way)
        if not 200 <= answer.status < 300:
            return await _missing(sender, message, target, answer) if answer.status == 404 else answer
        try:
            found = comments.read(answer.content, target.spec.type)
        except (ValueError, RecursionError):
            return Answer(0, "the list of comments cannot be read")
        for number, text in found:
            if text.startswith(comments.marker(message, target)):
                return await sender.send(comments.edited(message, target, number), timeout, target.way)
        if not thread.size or len(found) < comments.PAGE:
            return await sender.send(comments.created(message, target), timeout, target.way)
    most = comments.PAGE * comments.MOST_PAGES
    return Answer(_REFUSED, f"the pull request has more than {most} comments")


async def _missing(sender: Sender, message: Message, target: Target, answer: Answer) -> Answer:
    """There is no such pull request, or the token may not read it: a request for the repository shows
    which.
    """
    asked = await sender.send(comments.thread_of(message, target).exists(), target.spec.timeout, target.way)
    if not 200 <= asked.status < 300:
        return answer
    number = message.metadata[comments.CHANGE_REQUEST]
    return replace(answer, status=_REFUSED, text=f"the repository has no pull request {number}")
