"""Deliveries of several requests: with a GitHub App's token, to a commit, and to a pull request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.events.alerts.flag_set_progress import CHANGE_REQUEST
from controller.events.services import git_servers, github_app
from controller.events.services.change_request_comment import MOST_PAGES, PAGE, CommentThread, read_comments
from controller.events.services.http_sender import PostResult
from controller.events.services.notice import Notice
from controller.events.services.service_types import post_of

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.flagprovider import Message
    from controller.events.services.github_app import Grant
    from controller.events.services.http_sender import Sender
    from controller.events.services.notice import App, Post, ProviderTarget

_NOT_GRANTED: Final = 502
"""The status of a refused App token: a retry follows, since no message is at fault."""
_REFUSED: Final = 422
"""The status of a refusal, which is not retried."""


async def app_token(
    sender: Sender, target: ProviderTarget, app: App, known: Grant | None, now: datetime
) -> Grant | PostResult:
    """Return the known or a new token of the App, or an answer that reports why there is none."""
    if known is not None and now < known.until:
        return known
    answer = await _send(sender, target, await asyncio.to_thread(github_app.token_request, app, target, now))
    if not 200 <= answer.status < 300:
        status = _NOT_GRANTED if answer.status else 0
        return replace(answer, status=status, text=f"no token for the GitHub App: {answer.text}")
    try:
        return github_app.grant_of(answer.content, now)
    except (ValueError, RecursionError):
        return PostResult(_NOT_GRANTED, "no token for the GitHub App: the answer has none")


async def send_test_status(sender: Sender, message: Message, target: ProviderTarget) -> PostResult:
    """Send the status of a commit that does not exist; if it is refused as missing, check the repository."""
    answer = await _send(sender, target, post_of(message, target))
    # Statuses of these servers for a missing commit; Gitea's is 500.
    if answer.status not in {400, 404, 422, 500}:
        return answer
    repository = await _send(sender, target, git_servers.repository_request(target))
    return repository if repository.status == 200 else answer


async def upsert_comment(sender: Sender, message: Message, target: ProviderTarget) -> PostResult:
    """Edit the comment of the message's object, or add it. Returns the answer to the last request."""
    if CHANGE_REQUEST not in message.metadata:
        # A test has no pull request: it checks the address and the token.
        return await _send(sender, target, git_servers.repository_request(target))
    thread = CommentThread(Notice(message, target))
    for page in range(1, MOST_PAGES + 1):
        answer = await _send(sender, target, thread.list_request(page))
        if not 200 <= answer.status < 300:
            return await _explain_missing(sender, message, target, answer) if answer.status == 404 else answer
        try:
            comments = read_comments(answer.content, target.spec.type)
        except (ValueError, RecursionError):
            return PostResult(0, "the list of comments cannot be read")
        for number, text in comments:
            if text.startswith(thread.marker):
                return await _send(sender, target, thread.edit_request(number))
        if thread.is_last(len(comments)):
            return await _send(sender, target, thread.create_request())
    return PostResult(_REFUSED, f"the pull request has more than {PAGE * MOST_PAGES} comments")


async def _explain_missing(
    sender: Sender, message: Message, target: ProviderTarget, answer: PostResult
) -> PostResult:
    """Read the repository, to distinguish a missing pull request from a token without the right to read."""
    repository = await _send(sender, target, git_servers.repository_request(target))
    if not 200 <= repository.status < 300:
        return answer
    number = message.metadata[CHANGE_REQUEST]
    return replace(answer, status=_REFUSED, text=f"the repository has no pull request {number}")


async def _send(sender: Sender, target: ProviderTarget, post: Post) -> PostResult:
    return await sender.send(post, target.route)
