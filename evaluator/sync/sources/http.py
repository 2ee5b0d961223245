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
from evaluator.sync.sources.polled import PolledSource

if TYPE_CHECKING:
    from collections.abc import Callable

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


class HttpSource(PolledSource):
    """Follows one URL."""

    def __init__(
        self, name: str, identity: str, config: SourceConfig, schedule: Schedule, clock: Callable[[], float]
    ) -> None:
        """clock: Unix seconds."""
        super().__init__(name, identity, schedule, clock)
        self._config = config
        self._client: Client | None = None
        self._delivered = False
        self._url = without_credentials(config.uri)
        self._tokens: Tokens | None = None

    async def open(self) -> None:
        """Make a new client after each fault, since certificates may have been replaced."""
        self._client = await asyncio.to_thread(Client, self._config)

    def close(self) -> None:
        """Abort a request that is under way."""
        if self._client is not None:
            self._client.close()

    async def ask(self) -> SourceEvent:
        """See PolledSource."""
        client = self._client
        assert client is not None  # noqa: S101 - `open` comes first
        try:
            answer = await client.request(self._url, await self._headers(client), MAX_BYTES)
        except SourceFault as fault:
            raise SourceFault(fault.reason, f"{self.name}: {fault.message}") from None
        self.asked_to_wait = 0.0
        if answer.status in _OVERLOADED:
            self.asked_to_wait = wait_of(answer.headers.get("Retry-After", ""), self.clock())
        if answer.status == 304 and self._delivered:
            return UNCHANGED
        if not 200 <= answer.status < 300:
            if answer.status == 401 and self._tokens is not None:
                self._tokens.forget()
            reason = _REASONS.get(answer.status, "Refused")
            refused = SourceFault(reason, f"{self.name}: answered {answer.status}")
            if not self.asked_to_wait:
                raise refused
            return refused
        file = self._file(answer)
        if not answer.ends and format_of(file) is Syntax.YAML:
            # A document cut at the end of a line is valid, with fewer flags.
            raise SourceFault("Invalid", f"{self.name}: {_ENDLESS}")
        self.etag, self._delivered = answer.headers.get("ETag"), True
        return Delivery(((file, answer.body),))

    async def _headers(self, client: Client) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "Accept-Encoding": "gzip", **self._config.headers}
        if self._config.oauth is not None:
            if self._tokens is None:
                self._tokens = Tokens(self._config.oauth, asyncio.get_running_loop().time)
            headers["Authorization"] = f"Bearer {await self._tokens.token(client)}"
        elif (shown := await asyncio.to_thread(authorization, self._config)) is not None:
            headers["Authorization"] = shown
        if self.etag is not None:
            headers["If-None-Match"] = self.etag
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
