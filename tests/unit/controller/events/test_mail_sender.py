"""E-mail to a real server, with certificates and logins, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field, replace
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

from controller.api.addresses import AddressRefused, require_address
from controller.api.flagprovider import FlagProviderSpec
from controller.events.notice import ProviderTarget
from controller.events.senders import MailSender, PostResult
from controller.events.service_types import post_of
from controller.runtime.hosts import Hosts
from controller.runtime.http_client import Route
from controller.runtime.secret_texts import Tls
from tests.worlds.events import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OURS: Final = trustme.CA()
SERVER: Final = OURS.issue_cert("localhost")
ROUTE: Final = Route(Tls(OURS.cert_pem.bytes().decode()))
SPEC: Final = FlagProviderSpec(type="email", channel="team@example.com", username="flags@example.com")
SAID: Final = message(
    "k" * 64, metadata={"flagstaff.dev/changes": "~ banner: plain → christmas\n.\n+ new: on"}
)
MAIL: Final = post_of(SAID, ProviderTarget(SPEC, "smtp://localhost", "", "shop"))


@dataclass
class Mailbox:
    """Takes what it is sent; `refuse`: answers so to the command of that name instead."""

    refuse: dict[str, str] = field(default_factory=dict)
    logins: list[LoginPassword] = field(default_factory=list)
    taken: list[Envelope] = field(default_factory=list)

    async def handle_RCPT(self, *given: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        envelope: Envelope = given[2]
        envelope.rcpt_tos.append(given[3])
        return self.refuse.get("RCPT", "250 OK")

    async def handle_DATA(self, *given: Any) -> str:  # noqa: N802
        self.taken.append(given[2])
        return self.refuse.get("DATA", "250 OK")

    def authenticate(self, *given: Any) -> AuthResult:
        self.logins.append(given[4])
        return AuthResult(success=given[4] == LoginPassword(b"ada", b"p:ss"), handled=False)


@contextlib.asynccontextmanager
async def server(mailbox: Mailbox, *, implicit: bool = False, offers_tls: bool = True) -> AsyncIterator[str]:
    """The address of a server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVER.configure_cert(context)

    def talk() -> SMTP:
        upgrade = context if offers_tls and not implicit else None
        return SMTP(
            mailbox, tls_context=upgrade, require_starttls=upgrade is not None,
            authenticator=mailbox.authenticate, auth_require_tls=False, hostname="localhost",
        )  # fmt: skip

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(talk, "127.0.0.1", 0, ssl=context if implicit else None)
    try:
        port = listening.sockets[0].getsockname()[1]
        yield f"{'smtps' if implicit else 'smtp'}://localhost:{port}"
    finally:
        listening.close()


async def send(
    address: str, token: str = "", *, seconds: float = 60.0, route: Route = ROUTE, local: bool = True
) -> PostResult:
    sender = MailSender(Hosts(denied=(), kind="provider", local=local))
    post = post_of(SAID, ProviderTarget(SPEC, address, token, "shop"))
    return await sender.send(post, replace(route, seconds=seconds))


@pytest.mark.parametrize("implicit", [False, True])
async def test_email_body_matches_message(implicit: bool) -> None:
    mailbox = Mailbox()
    async with server(mailbox, implicit=implicit) as address:
        answer = await send(address, "ada:p:ss")
    assert (answer.status, answer.text) == (250, "status 250")
    assert mailbox.logins == [LoginPassword(b"ada", b"p:ss")]
    (envelope,) = mailbox.taken
    assert (envelope.mail_from, envelope.rcpt_tos) == ("flags@example.com", ["team@example.com"])
    assert isinstance(envelope.content, bytes)
    found = message_from_bytes(envelope.content, policy=policy.default)
    assert (found["Subject"], found["To"]) == ("FlagSet/flags.shop: Applied", "team@example.com")
    assert found["Message-ID"] == f"<{'k' * 64}@flagstaff.dev>"
    text = found.get_content().replace("\r\n", "\n")
    assert text == "1 changed: banner\n\n~ banner: plain → christmas\n.\n+ new: on\n\nReason: Applied\n"


@pytest.mark.parametrize(
    ("refuse", "status", "text"),
    [
        ({"DATA": "554 it looks like spam"}, 400, "status 554"),
        ({"DATA": "451 come again"}, 503, "status 451"),
        ({"RCPT": "550 nobody of that name"}, 503, "status 550"),
    ],
)
async def test_a_refusal_by_the_server_is_reported_without_its_words(
    refuse: dict[str, str], status: int, text: str
) -> None:
    async with server(Mailbox(refuse)) as address:
        answer = await send(address)
    assert (answer.status, answer.text) == (status, text)


async def test_a_wrong_password_is_reported_and_not_repeated() -> None:
    async with server(Mailbox()) as address:
        answer = await send(address, "ada:wr0ng")
    assert (answer.status, "535" in answer.text, "wr0ng" in answer.text) == (503, True, False)


async def test_mail_needs_tls_and_a_trusted_certificate() -> None:
    mailbox = Mailbox()
    async with server(mailbox, offers_tls=False) as address:
        assert (await send(address, "ada:p:ss")).text.startswith(
            "localhost: the server does not offer STARTTLS"
        )
    for implicit in (False, True):
        async with server(mailbox, implicit=implicit) as address:
            answer = await send(address, "ada:p:ss", route=Route())
            assert "CERTIFICATE_VERIFY_FAILED" in answer.text
            assert "not a public address" in (await send(address, local=False)).text
    assert (mailbox.taken, mailbox.logins) == ([], [])


@pytest.mark.parametrize("greeting", [b"", b"220-hello\r\n" * 100_000], ids=["silence", "chatter"])
@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_silent_or_endless_smtp_server_is_disconnected(scheme: str, greeting: bytes) -> None:
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(greeting)
            await writer.drain()
            while await reader.read(65_536):
                pass
        left.set()
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    answer = await send(
        f"{scheme}://localhost:{listening.sockets[0].getsockname()[1]}", seconds=60.0 if greeting else 0.5
    )
    assert answer.status == 0
    if scheme == "smtp":
        why = "the server's answer is not one of SMTP" if greeting else "no answer within 0.5 s"
        assert answer.text == f"localhost: {why}"
    async with asyncio.timeout(60):
        await left.wait()
    listening.close()


async def test_hanging_smtp_servers_delay_only_their_namespace() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    hanging = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = hanging.sockets[0].getsockname()[1]
    lost = post_of(SAID, ProviderTarget(SPEC, f"smtp://localhost:{port}", "", "shop"))
    sender = MailSender(Hosts(denied=(), kind="provider", local=True))
    greed = replace(ROUTE, namespace="greedy", seconds=60.0)
    greedy = [asyncio.create_task(sender.send(lost, greed)) for _ in range(100)]
    async with server(Mailbox()) as address:
        mail = post_of(SAID, ProviderTarget(SPEC, address, "", "shop"))
        for _ in range(3):
            assert await sender.send(mail, replace(ROUTE, namespace="shop", seconds=30.0)) == PostResult(
                250, "status 250"
            )
    for each in greedy:
        each.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    hanging.close()


async def test_refused_smtp_connection_is_reported() -> None:
    async with server(Mailbox()) as address:
        pass
    assert (await send(address)).text == "localhost: Connection refused"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://mail.example.com", "it must be smtps://HOST"),
        ("smtp://mail.example.com/inbox", "it must be smtps://HOST"),
        ("smtps://ada:secret@mail.example.com", "it must not contain a user"),
        ("smtps://10.0.0.1", "10.0.0.1 is not a public address"),
        ("smtps://[::1", "it is not a URL"),
        ("smtps://mail.example.com:0", "it must be a URL"),
    ],
)  # fmt: skip
def test_invalid_mail_server_address_is_refused(address: str, words: str) -> None:
    with pytest.raises(AddressRefused, match=words):
        require_address("email", address, allow_local=False)
