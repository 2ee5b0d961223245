"""Deliveries that take more than one request: by a GitHub App's token, to a commit, and to a pull request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.notifications.forms.payloads import post_of
from controller.notifications.forms.posts import Notice
from controller.notifications.forms.repositories import github_apps, servers
from controller.notifications.forms.repositories.comments import MOST_PAGES, PAGE, Thread, read
from controller.notifications.reporting.standing import CHANGE_REQUEST
from controller.notifications.sending.posting import Answer

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.provider import Message
    from controller.notifications.forms.posts import Post, Target
    from controller.notifications.forms.repositories.github_apps import App, Grant
    from controller.notifications.sending.posting import Sender

_NOT_GRANTED: Final = 502
"""The status of what is tried again, whatever the server said of the App: no message is at fault."""
_REFUSED: Final = 422
"""The status of what is not tried again."""


async def granted(
    sender: Sender, target: Target, app: App, known: Grant | None, now: datetime
) -> Grant | Answer:
    """A token of the App, which may be the known one; or why there is none."""
    if known is not None and now < known.until:
        return known
    answer = await _asked(sender, target, await asyncio.to_thread(github_apps.asked, app, target, now))
    if not 200 <= answer.status < 300:
        status = _NOT_GRANTED if answer.status else 0
        return replace(answer, status=status, text=f"no token for the GitHub App: {answer.text}")
    try:
        return github_apps.grant_of(answer.content, now)
    except (ValueError, RecursionError):
        return Answer(_NOT_GRANTED, "no token for the GitHub App: the answer has none")


async def try_status(sender: Sender, message: Message, target: Target) -> Answer:
    """Send the status of a commit that does not exist. Where only the commit may be missing, look further."""
    answer = await _asked(sender, target, post_of(message, target))
    # By these servers may miss the commit; Gitea's is 500.
    if answer.status not in {400, 404, 422, 500}:
        return answer
    looked = await _asked(sender, target, servers.look(target))
    return looked if looked.status == 200 else answer


async def upsert(sender: Sender, message: Message, target: Target) -> Answer:
    """Edit the comment of the message's object, or add it; the answer to the last request that was needed."""
    if CHANGE_REQUEST not in message.metadata:
        # A test is of no pull request: whether the address is right, and the token is taken.
        return await _asked(sender, target, servers.look(target))
    thread = Thread(Notice(message, target))
    for page in range(1, MOST_PAGES + 1):
        answer = await _asked(sender, target, thread.listed(page))
        if not 200 <= answer.status < 300:
            return await _missing(sender, message, target, answer) if answer.status == 404 else answer
        try:
            found = read(answer.content, target.spec.type)
        except (ValueError, RecursionError):
            return Answer(0, "the list of comments cannot be read")
        for number, text in found:
            if text.startswith(thread.marker):
                return await _asked(sender, target, thread.edited(number))
        if thread.is_last(len(found)):
            return await _asked(sender, target, thread.created())
    return Answer(_REFUSED, f"the pull request has more than {PAGE * MOST_PAGES} comments")


async def _missing(sender: Sender, message: Message, target: Target, answer: Answer) -> Answer:
    """Whether there is no such pull request, or the token may not read it: asks for the repository."""
    looked = await _asked(sender, target, servers.look(target))
    if not 200 <= looked.status < 300:
        return answer
    number = message.metadata[CHANGE_REQUEST]
    return replace(answer, status=_REFUSED, text=f"the repository has no pull request {number}")


async def _asked(sender: Sender, target: Target, post: Post) -> Answer:
    return await sender.send(post, target.spec.timeout, target.way)
