"""Sends the requests of deliveries by HTTP, and messages by e-mail.

E-mail goes only by TLS, and only to addresses that were checked.

The mail: https://www.rfc-editor.org/rfc/rfc5322
TLS from the start, and by STARTTLS: https://www.rfc-editor.org/rfc/rfc8314
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP as FOR_SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from aiosmtplib import (
    SMTP,
    SMTPDataError,
    SMTPException,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPServerDisconnected,
)

from controller.api.addresses import MAIL
from controller.runtime.http_client import HttpClient, RequestError, Route, context_of, read_all, read_start
from controller.runtime.limits import Places
from controller.runtime.setbacks import Setback
from evaluator.host.backoff import retry_after
from evaluator.host.times import read_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.events.notice import Notice, Post
    from controller.runtime.hosts import Hosts


_MOST_ANSWER: Final = 4_096
"""Most bytes that are read of an answer."""
_MOST_CONTENT: Final = 1 << 20
"""Most bytes that are read of an answer whose whole content is needed."""
_MOST_ETAG: Final = 512
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
    etag: str = ""
    """By which a later request may ask for what differs."""


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
                asked = answer.headers.get("Retry-After", "")
                pause = retry_after(asked, self.now().timestamp(), MOST_RETRY_AFTER)
                etag = answer.headers.get("ETag", "")
                etag = etag if len(etag) <= _MOST_ETAG else ""
                return PostResult(answer.status, f"status {answer.status}{words}", pause, content, etag)
        except (RequestError, Setback) as error:
            return PostResult(0, error.message)


AT_ONCE: Final = 64
"""Mails that are sent at a time, shared fairly among namespaces."""
_MOST_ADDRESSES: Final = 4
"""Most addresses of one name that are tried."""


def email(notice: Notice) -> Post:
    """Return a text mail; a retry has the same Message-ID."""
    message, target = notice.message, notice.target
    sender, recipient = target.spec.username or "", target.spec.channel or ""
    # Every server accepts 7-bit content.
    mail = EmailMessage(FOR_SMTP.clone(cte_type="7bit"))
    mail["From"], mail["To"] = sender, recipient
    mail["Subject"] = f"{notice.title}: {message.reason}"
    mail["Date"] = format_datetime(read_time(message.time))
    mail["Message-ID"] = f"<{message.key}@flagstaff.dev>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(notice.plain)
    headers = {"Content-Type": "message/rfc822", "From": sender, "To": recipient}
    return notice.post(mail.as_bytes(), **headers, Authorization=target.token)


class MailSender:
    """Belongs to one event loop."""

    def __init__(self, hosts: Hosts) -> None:
        """`hosts`: that may be reached."""
        self._hosts = hosts
        self._places = Places(AT_ONCE, AT_ONCE, resource="mail")

    async def send(self, post: Post, route: Route) -> PostResult:
        """Send to the URL's server within the route's seconds, not counting the wait for the namespace's
        turn. Never raises.
        """
        host = urlsplit(post.url).hostname or ""
        async with self._places.place(route.namespace):
            try:
                async with asyncio.timeout(route.seconds):
                    await self._deliver(post, route)
            except TimeoutError:
                return PostResult(0, f"{host}: no answer within {route.seconds:g} s")
            except Setback as setback:
                return PostResult(0, setback.message)
            except (SMTPException, OSError, ValueError) as error:
                return _refusal(host, error)
        return PostResult(250, "status 250")

    async def _deliver(self, post: Post, route: Route) -> None:
        """Raises SMTPException, OSError, Setback."""
        parts = urlsplit(post.url)
        host, port = parts.hostname or "", parts.port or MAIL[parts.scheme]
        tls = await asyncio.to_thread(context_of, route.tls)
        implicit = parts.scheme == "smtps"
        client = SMTP(
            hostname=host, sock=await self._connect(host, port), timeout=None, local_hostname="flagstaff",
            use_tls=implicit, start_tls=not implicit, tls_context=tls,
        )  # fmt: skip
        try:
            await client.connect()
            user, _, password = post.headers["Authorization"].partition(":")
            if user:
                await client.login(user, password)
            await client.sendmail(post.headers["From"], post.headers["To"], post.body)
            # The mail was accepted: an error of QUIT is ignored.
            with contextlib.suppress(SMTPException, OSError):
                await client.quit()
        finally:
            client.close()

    async def _connect(self, host: str, port: int) -> socket.socket:
        """Return a socket connected to one of the host's checked addresses. Raises OSError, Setback."""
        failure = OSError("the name has no address")
        for address in (await self._hosts.addresses(host, port))[:_MOST_ADDRESSES]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connection, (address, port))
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
            else:
                return connection
        raise failure


def _refusal(host: str, error: BaseException) -> PostResult:
    """Return the result of a try that failed; the server's words are never shown."""
    if isinstance(error, SMTPRecipientsRefused):
        error = error.recipients[0]
    if isinstance(error, SMTPResponseException):
        if error.code < 0:
            return PostResult(0, f"{host}: the server's answer is not one of SMTP")
        # These numbers mean something else in HTTP: a message whose content is refused (400) is given up,
        # whatever was refused before that is tried again.
        refused = isinstance(error, SMTPDataError) and error.code >= 500
        return PostResult(400 if refused else 503, f"status {error.code}")
    if isinstance(error, SMTPException) and error.__cause__ is not None:
        return _refusal(host, error.__cause__)
    words = type(error).__name__
    if isinstance(error, SMTPServerDisconnected):
        words = "the connection ended without an answer"
    elif isinstance(error, SMTPException):
        words = "the server does not offer STARTTLS, or no way to log in"
    elif isinstance(error, ssl.SSLError):
        words = error.reason or "the TLS handshake failed"
    elif isinstance(error, OSError):
        words = os.strerror(error.errno) if error.errno else str(error)
    return PostResult(0, f"{host}: {words}")
