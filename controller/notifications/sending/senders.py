"""Picks the sender of a request by the scheme of its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from controller.notifications.forms.posts import DIRECT

if TYPE_CHECKING:
    from controller.notifications.forms.posts import Post, Way
    from controller.notifications.sending.posting import Answer


class Sender(Protocol):
    """Sends requests to other people's servers."""

    async def send(
        self,
        post: Post,
        timeout: float,  # noqa: ASYNC109 - of one request
        way: Way = DIRECT,
    ) -> Answer:
        """Ask once; never raises."""


@dataclass(frozen=True, slots=True)
class Senders:
    """All of them."""

    http: Sender
    mail: Sender
    apprise: Sender

    async def send(
        self,
        post: Post,
        timeout: float,  # noqa: ASYNC109 - of one request
        way: Way = DIRECT,
    ) -> Answer:
        """Ask once; never raises."""
        scheme = post.url.partition("://")[0].lower()
        known = {"http": self.http, "https": self.http, "smtp": self.mail, "smtps": self.mail}
        sender = known.get(scheme, self.apprise)
        return await sender.send(post, timeout, way)
