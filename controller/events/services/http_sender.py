"""Sends the requests of deliveries, and reads a bounded part of each answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Protocol

from controller.runtime.network.http_client import RequestError, read_all, read_start
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.events.services.notice import Post
    from controller.runtime.network.http_client import HttpClient, Route

_MOST_ANSWER: Final = 4_096
"""Most bytes that are read of an answer."""
_MOST_CONTENT: Final = 1 << 20
"""Most bytes that are read of an answer whose whole content is needed."""
_KNOWN_WORDS: Final = (
    "channel_not_found", "channel_is_archived", "not_in_channel", "action_prohibited", "invalid_auth",
    "invalid_payload", "invalid_token", "msg_too_long", "no_service", "not_authed", "ratelimited",
    "rate_limited", "token_expired", "token_revoked", "Unknown Webhook", "Invalid Webhook Token",
    "Bad credentials", "Requires authentication", "Resource not accessible", "Validation Failed",
    "Commit Not Found", "No commit found for SHA",
)  # fmt: skip
"""Error words of known services: the only text of an answer that is shown, since any server may answer."""
MOST_RETRY_AFTER: Final = 3_600.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a request."""

    status: int
    """HTTP status; 0: no answer."""
    text: str
    """The result in one line, in our own and known words only."""
    retry_after: float = 0.0
    """Seconds."""
    content: bytes = b""
    """The whole content if `Post.whole`; otherwise its beginning."""


class Sender(Protocol):
    """Sends requests to other people's servers."""

    async def send(self, post: Post, route: Route) -> PostResult:
        """Send once; never raises."""


@dataclass(frozen=True, slots=True)
class HttpSender:
    """Sends requests over HTTP."""

    client: HttpClient
    now: Callable[[], datetime]

    async def send(self, post: Post, route: Route) -> PostResult:
        """Send once; never raises."""
        try:
            async with self.client.request(
                post.method, post.url, headers=post.headers, data=post.body, route=route
            ) as answer:
                if post.whole:
                    content = await read_all(answer, _MOST_CONTENT)
                else:
                    content = await read_start(answer, _MOST_ANSWER)
                start = content[:_MOST_ANSWER].decode(errors="replace")
                words = next((f": {words}" for words in _KNOWN_WORDS if words in start), "")
                pause = _pause(answer.headers.get("Retry-After", ""), self.now())
                return PostResult(answer.status, f"status {answer.status}{words}", pause, content)
        except (RequestError, Setback) as error:
            return PostResult(0, error.message)


def _pause(header: str, now: datetime) -> float:
    """Return the bounded seconds of `Retry-After`, a number or a date; 0 without one."""
    text = header.strip()[:64]
    if text.isascii() and text.isdigit():
        return min(MOST_RETRY_AFTER, float(text))
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, min(MOST_RETRY_AFTER, (moment - now).total_seconds()))
