"""OAuth 2.0 client credentials (RFC 6749, 4.4), in the form's fields as flagd sends them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evaluator.sync.source import SourceFault
from evaluator.sync.sources.credentials import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.sync.config import OAuth
    from evaluator.sync.sources.http_client import Client

_LIMIT: Final = 1024 * 1024
_EARLY: Final = 10.0
"""Seconds before its expiry at which a token is renewed."""
_LONGEST: Final = 10**9
"""Most seconds of a token's life; a number in JSON may be larger than any clock's."""


class Tokens:
    """The token of one source, requested when there is no valid one."""

    def __init__(self, oauth: OAuth, clock: Callable[[], float]) -> None:
        """clock: monotonic seconds."""
        self._oauth = oauth
        self._clock = clock
        self._secret = (oauth.client_id, oauth.client_secret)
        self._read_at: float | None = None
        self._token: str | None = None
        self._until = 0.0

    async def token(self, client: Client) -> str:
        """Return a valid token. Raises SourceFault."""
        if self._oauth.folder:
            await self._reload()
        if self._token is None or self._clock() >= self._until:
            await self._ask(client)
        return self._token or ""

    def forget(self) -> None:
        """Drop the token, after the peer refused it."""
        self._token = None

    async def _reload(self) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < self._oauth.reload_seconds:
            return
        folder = Path(self._oauth.folder)
        names = ("client-id", "client-secret")
        read = [await asyncio.to_thread(read_secret, folder / name) for name in names]
        self._read_at = now
        if (read[0], read[1]) != self._secret:
            self._secret = (read[0], read[1])
            self._token = None

    async def _ask(self, client: Client) -> None:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._secret[0],
            "client_secret": self._secret[1],
        }
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        answer = await client.request(self._oauth.token_url, headers, _LIMIT, form)
        if answer.status != 200:
            raise SourceFault("Unauthorized", f"the token request was refused with status {answer.status}")
        token, seconds = _parse_answer(answer.body)
        self._token = token
        self._until = self._clock() + max(0.0, seconds - _EARLY)


def _parse_answer(body: bytes) -> tuple[str, float]:
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    match answer:
        case {"access_token": str(token), **more} if token.isascii() and token.isprintable():
            seconds = more.get("expires_in")
            if not isinstance(seconds, int):
                return token, 3_600.0
            return token, float(max(0, min(seconds, _LONGEST)))
    raise SourceFault("Unauthorized", "the token response has no access_token")
