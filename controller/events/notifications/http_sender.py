"""Sends requests to addresses that users name: only to allowed hosts, reading a bounded answer."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from controller.api.parsing.addresses import (
    MAIL,
    AddressRefused,
    require_proxy,
    require_public,
    require_usable,
)
from controller.delivery.problems import one_line
from controller.events.notifications.notice import DIRECT
from controller.runtime.network.client_tls import context_of
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.tenancy.hosts import Hosts, look_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.events.notifications.notice import Post, Way

_MOST_ANSWER: Final = 4_096
"""Most bytes that are read of an answer."""
_MOST_CONTENT: Final = 1 << 20
"""Most bytes that are read of an answer whose whole content is needed."""
_KNOWN: Final = (
    "channel_not_found", "channel_is_archived", "not_in_channel", "action_prohibited", "invalid_auth",
    "invalid_payload", "invalid_token", "msg_too_long", "no_service", "not_authed", "ratelimited",
    "rate_limited", "token_expired", "token_revoked", "chat not found", "bot was blocked",
    "Unknown Webhook", "Invalid Webhook Token", "M_FORBIDDEN", "M_LIMIT_EXCEEDED", "M_UNKNOWN_TOKEN",
    "Bad credentials", "Requires authentication", "Resource not accessible", "Validation Failed",
    "Commit Not Found", "No commit found for SHA", "SignatureDoesNotMatch",
)  # fmt: skip
"""Error words of known services: the only text of an answer that is shown."""
ANY: Final = Hosts(denied=(), kind="provider")
"""Allows all hosts but those that are always forbidden."""
MOST_RETRY_AFTER: Final = 3_600.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a request."""

    status: int
    """HTTP status; 0: no answer."""
    text: str
    """The result in one line, in our own and known words only, since any service may have answered."""
    retry_after: float = 0.0
    """Seconds."""
    content: bytes = b""
    """The whole content if `Post.whole`; otherwise its beginning."""


class Sender(Protocol):
    """Sends requests to other people's servers."""

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        """Send once, within `seconds`; never raises."""


@dataclass(frozen=True, slots=True)
class Senders:
    """Picks the sender of a request by its URL and its way."""

    http: Sender
    mail: Sender
    operators: Sender
    """For addresses that the controller's operator gave."""

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        """Send once; never raises."""
        if urlsplit(post.url).scheme in MAIL:
            return await self.mail.send(post, seconds, way)
        return await (self.operators if way.operators else self.http).send(post, seconds, way)


class _TooLong(Exception):
    """An answer is longer than the limit."""


class PublicResolver(AbstractResolver):
    """A resolver that returns a name's addresses only if all of them are allowed."""

    def __init__(self, *, allow_local: bool, hosts: Hosts = ANY) -> None:
        self._allow_local = allow_local
        self._hosts = hosts

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the checked addresses of a name. Raises OSError."""
        try:
            self._hosts.require_not_denied(host)
            found = await look_up(host, port, family, socket.AI_ADDRCONFIG)
            await self._hosts.require_addresses(host, port, tuple(str(each[4][0]) for each in found))
        except Stalled as error:
            raise OSError(error.message) from None
        results = []
        for kind, _, protocol, _, address in found:
            number, flags = str(address[0]), socket.AI_NUMERICHOST
            try:
                require_public(number, allow_local=self._allow_local)
            except AddressRefused as error:
                raise OSError(str(error)) from None
            results.append(
                ResolveResult(hostname=host, host=number, port=port, family=kind, proto=protocol, flags=flags)
            )
        return results

    async def close(self) -> None:
        """Do nothing: there is no state."""


class Poster:
    """Belongs to one event loop."""

    def __init__(self, now: Callable[[], datetime], *, allow_local: bool, hosts: Hosts = ANY) -> None:
        """`allow_local`: also http and private addresses. `hosts`: the allowed ones."""
        self._now = now
        self._allow_local = allow_local
        self._hosts = hosts
        connector = aiohttp.TCPConnector(
            limit=256, use_dns_cache=False, resolver=PublicResolver(allow_local=allow_local, hosts=hosts)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"User-Agent": "flagstaff-controller"},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        """Send once, within `seconds`."""
        try:
            require_usable(post.url, allow_local=self._allow_local)
            require_proxy(way.proxy, allow_local=self._allow_local)
            await self._judge(post.url, way.proxy)
            async with self._session.request(
                post.method,
                post.url,
                data=post.body or None,
                headers=post.headers,
                allow_redirects=False,
                ssl=context_of(way.tls) if any(way.tls) else True,
                proxy=way.proxy or None,
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as answer:
                if post.whole:
                    content = await _content(answer)
                else:
                    content = await answer.content.read(_MOST_ANSWER)
                said = content[:_MOST_ANSWER].decode(errors="replace")
                words = next((f": {each}" for each in _KNOWN if each in said), "")
                pause = self._pause(answer.headers.get("Retry-After", ""))
                return PostResult(answer.status, f"status {answer.status}{words}", pause, content)
        except _TooLong:
            return PostResult(0, f"the answer has more than {_MOST_CONTENT} bytes")
        except (AddressRefused, Stalled, aiohttp.ClientError, OSError, ValueError) as error:
            return PostResult(0, why(error, seconds) or _why(error))

    async def _judge(self, url: str, proxy: str) -> None:
        """Check hosts that bypass our resolver: IP addresses, names that a proxy looks up. Raises Stalled."""
        if proxy:
            self._hosts.require_name(urlsplit(url).hostname or "")
        asked = urlsplit(proxy or url)
        await self._hosts.require_literal(asked.hostname or "", asked.port or 443)

    def _pause(self, header: str) -> float:
        """Return the bounded seconds of `Retry-After`, a number or a date; 0 without one."""
        text = header.strip()[:64]
        if text.isascii() and text.isdigit():
            return min(MOST_RETRY_AFTER, float(text))
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, min(MOST_RETRY_AFTER, (moment - self._now()).total_seconds()))


async def _content(answer: aiohttp.ClientResponse) -> bytes:
    """Read the whole content. Raises _TooLong."""
    content = bytearray()
    async for part in answer.content.iter_any():
        content += part
        if len(content) > _MOST_CONTENT:
            raise _TooLong
    return bytes(content)


def why(error: BaseException, seconds: float) -> str:
    """Return why there is no answer within `seconds`; empty for errors that the caller explains."""
    if isinstance(error, AddressRefused):
        return f"the address cannot be used: {error}"
    if isinstance(error, Stalled):
        return error.message
    return f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else ""


def _why(error: Exception) -> str:
    """Return why there is no answer, without the URL, which may be a secret."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause: BaseException = error.os_error
        refused = isinstance(cause, ConnectionRefusedError)
        said = "connection refused" if refused else (getattr(cause, "strerror", None) or str(cause))
        return one_line(f"{error.host}: {said}", 200)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered with status {error.status}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection ended without an answer"
    return f"{type(error).__name__}"
