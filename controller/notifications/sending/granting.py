"""Asks for the token of a GitHub App, where the last one ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.notifications.forms import github_apps
from controller.notifications.sending.posting import Answer

if TYPE_CHECKING:
    from datetime import datetime

    from controller.notifications.forms.github_apps import App, Grant
    from controller.notifications.forms.posts import Target
    from controller.notifications.sending.senders import Sender

_NOT_GRANTED = 502
"""The status of what is tried again, whatever the server said of the App: no message is at fault."""


async def granted(
    sender: Sender, target: Target, app: App, known: Grant | None, now: datetime
) -> Grant | Answer:
    """A token that is good for minutes: the known one, or another; or why there is none."""
    if known is not None and now < known.until:
        return known
    post = await asyncio.to_thread(github_apps.asked, app, target, now)
    answer = await sender.send(post, target.spec.timeout, target.way)
    if not 200 <= answer.status < 300:
        status = _NOT_GRANTED if answer.status else 0
        return replace(answer, status=status, text=f"no token for the GitHub App: {answer.text}")
    try:
        return github_apps.grant_of(answer.content, now)
    except (ValueError, RecursionError):
        return Answer(_NOT_GRANTED, "no token for the GitHub App: the answer has none")
