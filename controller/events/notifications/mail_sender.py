"""Sends e-mail with aiosmtplib: only by TLS, and only to addresses that were checked.

TLS from the start, and by STARTTLS: https://www.rfc-editor.org/rfc/rfc8314
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiosmtplib import (
    SMTP,
    SMTPDataError,
    SMTPException,
    SMTPRecipientsRefused,
    SMTPResponseException,
    SMTPServerDisconnected,
)

from controller.api.parsing.addresses import MAIL
from controller.events.notifications.http_sender import ANY, PostResult, PublicResolver, why
from controller.events.notifications.notice import DIRECT
from controller.runtime.network.client_tls import context_of
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.tenancy.places import Places

if TYPE_CHECKING:
    from controller.events.notifications.notice import Post, Way
    from controller.runtime.tenancy.hosts import Hosts

AT_ONCE: Final = 64
"""Mails that are sent at a time, shared fairly among namespaces."""
_MOST_ADDRESSES: Final = 4
"""Most addresses of one name that are tried."""


class MailSender:
    """Belongs to one event loop."""

    def __init__(self, *, allow_local: bool, hosts: Hosts = ANY) -> None:
        """`allow_local`: also addresses of this machine and private networks. `hosts`: the allowed ones."""
        self._resolver = PublicResolver(allow_local=allow_local, hosts=hosts)
        self._places = Places(AT_ONCE)

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        """Send to the URL's server within `seconds`, not counting the wait for a place. Never raises."""
        host = urlsplit(post.url).hostname or ""
        async with self._places.place(way.namespace):
            try:
                async with asyncio.timeout(seconds):
                    await self._deliver(post, way)
            except SMTPException as error:
                return _refusal(host, error, seconds)
            except (Stalled, OSError, ValueError) as error:
                return PostResult(0, why(error, seconds) or _reason(host, error))
        return PostResult(250, "status 250")

    async def _deliver(self, post: Post, way: Way) -> None:
        """Raises SMTPException, OSError, Stalled."""
        parts = urlsplit(post.url)
        host, port = parts.hostname or "", parts.port or MAIL[parts.scheme]
        tls = await asyncio.to_thread(context_of, way.tls)
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
        """Return a socket connected to one of the host's checked addresses. Raises OSError."""
        failure: OSError = OSError("the name has no address")
        for address in (await self._resolver.resolve(host, port, socket.AF_UNSPEC))[:_MOST_ADDRESSES]:
            connection = socket.socket(address["family"], socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connection, (address["host"], port))
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
            else:
                return connection
        raise failure


def _refusal(host: str, error: SMTPException, seconds: float) -> PostResult:
    """Return the result of a try that the server ended; the server's words are never shown."""
    if isinstance(error, SMTPRecipientsRefused):
        error = error.recipients[0]
    if isinstance(error, SMTPResponseException):
        if error.code < 0:
            return PostResult(0, f"{host}: the server's answer is not one of SMTP")
        # These numbers mean something else in HTTP: a message whose content is refused (400) is given up,
        # whatever was refused before that is tried again.
        refused = isinstance(error, SMTPDataError) and error.code >= 500
        return PostResult(400 if refused else 503, f"status {error.code}")
    if error.__cause__ is not None:
        return PostResult(0, why(error.__cause__, seconds) or _reason(host, error.__cause__))
    if isinstance(error, SMTPServerDisconnected):
        return PostResult(0, f"{host}: the connection ended without an answer")
    return PostResult(0, f"{host}: the server does not offer STARTTLS, or no way to log in")


def _reason(host: str, error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{host}: {error.reason or 'the TLS handshake failed'}"
    if isinstance(error, OSError):
        return f"{host}: {os.strerror(error.errno) if error.errno else error}"
    return f"{host}: {type(error).__name__}"
