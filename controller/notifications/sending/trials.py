"""Tests providers of commit statuses on servers that do not say that nothing but the commit is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.notifications.forms import commits
from controller.notifications.forms.payloads import post_of

if TYPE_CHECKING:
    from controller.api.provider import Message
    from controller.notifications.forms.posts import Target
    from controller.notifications.sending.posting import Answer
    from controller.notifications.sending.senders import Sender

_MISSED: Final = frozenset({400, 404, 422, 500})
"""Answers to a status of a commit that does not exist, by a server that accepted the token: Gitea's is
500.
"""


async def try_status(sender: Sender, message: Message, target: Target) -> Answer:
    """What came of the status of a commit that does not exist. Where the server may miss nothing but the
    commit, the answer is that to a look at the repository, if it is there.
    """
    answer = await sender.send(post_of(message, target), target.spec.timeout, target.way)
    if answer.status not in _MISSED:
        return answer
    asked = await sender.send(commits.repository(target), target.spec.timeout, target.way)
    return asked if asked.status == 200 else answer
