"""Sends e-mail with smtplib, in threads: only with TLS, and only to allowed servers."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import socket
import time
from functools import partial
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from controller.api.parsing.addresses import MAIL
from controller.delivery.problems import one_line
from controller.notifications.forms.posts import DIRECT
from controller.notifications.sending.posting import ANY, PostResult, PublicResolver, why
from controller.notifications.sending.threads import Threads
from controller.runtime.network.client_tls import context_of
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    import ssl

    from controller.notifications.forms.posts import Post, Way
    from controller.runtime.tenancy.hosts import Hosts


class _Answers:
    """The reader of a server's answers, of at most 64 KiB."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = 64 * 1024

    def readline(self, limit: int) -> bytes:
        line = self._file.readline(min(limit, self._left))
        self._left -= len(line)
        if not self._left:
            raise OSError("the server's replies are too long")
        return line

    def close(self) -> None:
        self._file.close()


class Client(smtplib.SMTP):
    """An SMTP client that connects only to addresses that were checked, without another look-up."""

    def __init__(self, numbers: list[str], tls: ssl.SSLContext, *, implicit: bool) -> None:
        self._numbers, self._tls, self._implicit = numbers, tls, implicit
        self._answers: _Answers | None = None
        self._over = False
        self._end = 0.0
        super().__init__(local_hostname="flagstaff")

    @property
    def file(self) -> Any:
        """The file from which the base class reads the server's answers."""
        return self._answers

    @file.setter
    def file(self, file: IO[bytes] | None) -> None:
        self._answers = None if file is None else _Answers(file)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        problem: OSError = OSError("the name has no address")
        for number in self._numbers[:4]:
            self._require_wanted()
            try:
                self.sock = socket.create_connection((number, port), self._left())
            except OSError as error:
                problem = error
                continue
            self.sock.settimeout(timeout)
            self._require_wanted()
            return self.wrap_socket(self.sock, host) if self._implicit else self.sock
        raise problem

    def _left(self) -> float:
        """Seconds until the try ends."""
        return max(0.001, self._end - time.monotonic())

    def _require_wanted(self) -> None:
        if self._over:
            raise OSError("the send was cancelled")

    def wrap_socket(self, plain: socket.socket, server_hostname: str) -> socket.socket:
        """Start TLS, as SSLContext.wrap_socket does, but hang_up also ends the handshake."""
        self.sock = self._tls.wrap_socket(
            plain, server_hostname=server_hostname, do_handshake_on_connect=False
        )
        self.sock.do_handshake()
        return self.sock

    def deliver(self, host: str, port: int, post: Post, seconds: float) -> None:
        """Deliver a mail. Blocks. Raises what smtplib raises. `seconds`: of connecting, and of each step."""
        self.timeout, self._host = seconds, host
        self._end = time.monotonic() + seconds
        try:
            self._deliver(host, port, post)
        finally:
            self.close()

    def _deliver(self, host: str, port: int, post: Post) -> None:
        code, text = self.connect(host, port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, text)
        if not self._implicit:
            self.starttls(context=self)  # type: ignore[call-overload]
        user, _, password = post.headers["Authorization"].partition(":")
        if user:
            self.login(user, password)
        self.sendmail(post.headers["From"], [post.headers["To"]], post.body)
        # The mail was accepted: an error of QUIT is ignored.
        with contextlib.suppress(smtplib.SMTPException, OSError):
            self.quit()

    def hang_up(self) -> None:
        """End every wait for the server; from any thread."""
        self._over, sock = True, self.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class MailSender:
    """Belongs to one event loop."""

    def __init__(self, *, allow_local: bool, hosts: Hosts = ANY) -> None:
        """`allow_local`: also addresses of this machine and private networks. `hosts`: the allowed ones."""
        self._resolver = PublicResolver(allow_local=allow_local, hosts=hosts)
        self._threads = Threads("mail")

    def close(self) -> None:
        """Refuse further sends."""
        self._threads.close()

    async def send(self, post: Post, seconds: float, way: Way = DIRECT) -> PostResult:
        """Send to the URL's server within `seconds`, not counting the wait for a free thread."""
        parts = urlsplit(post.url)
        host, port = parts.hostname or "", parts.port or MAIL[parts.scheme]
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        try:
            async with asyncio.timeout(seconds):
                found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
                tls = await asyncio.to_thread(context_of, way.tls)
            client = Client([each["host"] for each in found], tls, implicit=parts.scheme == "smtps")
            deliver = partial(client.deliver, host, port, post)
            await self._threads.run(way.namespace, end - clock(), deliver, client.hang_up)
        except (Stalled, smtplib.SMTPException, OSError, ValueError) as error:
            said = why(error, seconds)
            return PostResult(0, said) if said else _answer(host, error)
        return PostResult(250, "status 250")


def _answer(host: str, error: Exception) -> PostResult:
    # The server's text is not shown: any service may have answered.
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        ((code, _),) = error.recipients.values()
    elif isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
    elif isinstance(error, smtplib.SMTPNotSupportedError):
        return PostResult(0, f"{host}: the server does not offer STARTTLS, or no way to log in")
    else:
        return PostResult(0, one_line(f"{host}: {getattr(error, 'strerror', None) or error}", 200))
    # These numbers mean something else where HTTP is spoken: by 400, a message whose content is not wanted is
    # not tried again. What is refused before that is.
    status = 400 if isinstance(error, smtplib.SMTPDataError) and code >= 500 else 503
    return PostResult(status, f"status {code}")
