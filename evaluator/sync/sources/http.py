"""A document at a URL, polled with its ETag."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from evaluator.flags.syntax.document import Syntax, format_of
from evaluator.sync.schedule import CAP
from evaluator.sync.source import MAX_BYTES, UNCHANGED, Delivery, SourceFault
from evaluator.sync.sources.credentials import authorization, without_credentials
from evaluator.sync.sources.http_client import Client, HttpResponse
from evaluator.sync.sources.oauth import Tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from evaluator.sync.config import SourceConfig
    from evaluator.sync.schedule import Schedule
    from evaluator.sync.source import SourceEvent

_ACCEPT: Final = "application/json, application/yaml"
_REASONS: Final = {401: "Unauthorized", 403: "Unauthorized", 404: "NotFound", 410: "NotFound"}
_ENDLESS: Final = (
    "answered YAML without its length, so that a truncated response cannot be detected; "
    "have the server send Content-Length or chunks, or serve JSON"
)
_OVERLOADED: Final = frozenset({429, 503})


class HttpSource:
    """Follows one URL. Implements `SyncSource`."""

    def __init__(
        self, name: str, identity: str, config: SourceConfig, schedule: Schedule, clock: Callable[[], float]
    ) -> None:
        """clock: Unix seconds."""
        self.name = name
        self.identity = identity
        self._config = config
        self._schedule = schedule
        self._clock = clock
        self._etag: str | None = None
        self._delivered = False
        self._url = without_credentials(config.uri)
        self._tokens: Tokens | None = None
        self._asked_to_wait = 0.0
        """Seconds that the last answer asked to wait."""

    async def deliveries(self) -> AsyncGenerator[SourceEvent, None]:
        """Yield the document at each look; raise SourceFault if it cannot be read."""
        # A new client after each fault, since certificates may have been replaced.
        client = await asyncio.to_thread(Client, self._config)
        try:
            while True:
                yield await self._ask(client)
                await asyncio.sleep(max(self._schedule.pause(self._clock()), self._asked_to_wait))
        finally:
            client.close()

    async def _ask(self, client: Client) -> SourceEvent:
        try:
            answer = await client.request(self._url, await self._headers(client), MAX_BYTES)
        except SourceFault as fault:
            raise SourceFault(fault.reason, f"{self.name}: {fault.message}") from None
        self._asked_to_wait = 0.0
        if answer.status in _OVERLOADED:
            self._asked_to_wait = wait_of(answer.headers.get("Retry-After", ""), self._clock())
        if answer.status == 304 and self._delivered:
            return UNCHANGED
        if not 200 <= answer.status < 300:
            if answer.status == 401 and self._tokens is not None:
                self._tokens.forget()
            reason = _REASONS.get(answer.status, "Refused")
            refused = SourceFault(reason, f"{self.name}: answered {answer.status}")
            if not self._asked_to_wait:
                raise refused
            return refused
        file = self._file(answer)
        if not answer.ends and format_of(file) is Syntax.YAML:
            # A document cut at the end of a line is valid, with fewer flags.
            raise SourceFault("Invalid", f"{self.name}: {_ENDLESS}")
        self._etag, self._delivered = answer.headers.get("ETag"), True
        return Delivery(((file, answer.body),))

    async def _headers(self, client: Client) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "Accept-Encoding": "gzip", **self._config.headers}
        if self._config.oauth is not None:
            if self._tokens is None:
                self._tokens = Tokens(self._config.oauth, asyncio.get_running_loop().time)
            headers["Authorization"] = f"Bearer {await self._tokens.token(client)}"
        elif (shown := await asyncio.to_thread(authorization, self._config)) is not None:
            headers["Authorization"] = shown
        if self._etag is not None:
            headers["If-None-Match"] = self._etag
        return headers

    def _file(self, answer: HttpResponse) -> str:
        """Return the file name for messages; its extension gives the format, else the content type does."""
        parts = urlsplit(self._url)
        file = f"{parts.scheme}://{parts.netloc}{parts.path}"
        if format_of(file) is None and "yaml" in answer.headers.get("Content-Type", "").lower():
            return f"{file}#.yaml"
        return file


def wait_of(retry_after: str, now: float) -> float:
    """Return the seconds of a `Retry-After`, up to CAP; 0 for none (RFC 9110, 10.2.3). now: Unix seconds."""
    if retry_after.isascii() and retry_after.isdigit():
        return min(CAP, float(retry_after[:9]))
    try:
        moment = parsedate_to_datetime(retry_after).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(CAP, max(0.0, moment - now))
