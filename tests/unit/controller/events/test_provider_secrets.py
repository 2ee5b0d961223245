"""Servers that are reached with certificates of a Secret, and through a proxy."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
import trustme
from aiohttp import web

from controller.api.flagprovider import FlagProviderStatus
from controller.events.notice import Post
from controller.events.provider_reconciler import FlagProviderReconciler
from controller.runtime.http_client import Route
from controller.runtime.secret_texts import Binding, SecretContent, Tls
from controller.runtime.setbacks import Stalled, Waiting
from tests.git_http import http_proxy
from tests.web_server import web_server
from tests.worlds.events import CHAT, NOW, Desk, Plans, http_sender
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.meta import ObjectKey
    from controller.events.notice import ProviderTarget
    from controller.events.senders import PostResult

OURS: Final = trustme.CA()
SERVER, CLIENT = OURS.issue_cert("localhost"), OURS.issue_cert("flags.example.com")
AUTHORITY: Final = OURS.cert_pem.bytes()
CERTIFICATE: Final = CLIENT.cert_chain_pems[0].bytes()
KEY: Final = CLIENT.private_key_pem.bytes()


@contextlib.asynccontextmanager
async def server(*, asks: bool = False) -> AsyncIterator[str]:
    """The URL of a server with a certificate that our authority issued, and which `asks` for one, too."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVER.configure_cert(context)
    OURS.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE

    async def take(request: web.Request) -> web.Response:
        return web.Response(text=await request.text())

    async with web_server(web.post("/hook", take), tls=context) as port:
        yield f"https://localhost:{port}/hook"


async def ask(url: str, route: Route, *, local: bool = True) -> PostResult:
    async with http_sender(local=local) as sender:
        return await sender.send(Post(url, b"{}", {}), route)


def tls(*, shown: bool = False) -> Route:
    own = (CERTIFICATE.decode(), KEY.decode()) if shown else ()
    return Route(Tls(AUTHORITY.decode(), *own))


async def test_client_certificate_of_the_secret_is_presented() -> None:
    async with server(asks=True) as url:
        assert (await ask(url, tls())).status == 0
        assert (await ask(url, tls(shown=True))).status == 200


async def test_proxy_login_is_sent_and_a_refused_one_reported() -> None:
    async with server() as url:
        with http_proxy("ada:secret") as proxy:
            there = proxy.address.removeprefix("http://")
            through = Route(tls().tls, f"http://ada:secret@{there}")
            assert (await ask(url, through)).status == 200
            refused = await ask(url, Route(tls().tls, f"http://ada:wrong@{there}"))
            assert refused.text == "localhost: the proxy answers 407"
            assert "secret" not in refused.text
            assert proxy.targets == [urlsplit(url).netloc] * 2


class Routes:
    """What a deliverer is given."""

    def __init__(self) -> None:
        self.target: ProviderTarget | None = None

    def use(self, key: ObjectKey, target: ProviderTarget) -> None:
        del key
        self.target = target

    def stop(self, key: ObjectKey) -> None:
        del key
        self.target = None

    def last(self, key: ObjectKey) -> tuple[()]:
        del key
        return ()


async def reconcile(
    secrets: Mapping[str, Mapping[str, bytes]], *, local: bool = False, **more: Any
) -> tuple[Any, ProviderTarget | None]:
    """(outcome, target) of a provider that names Secrets `certs` and `proxy`."""
    routes = Routes()

    async def secret(_: str, name: str) -> Mapping[str, bytes] | None:
        return secrets.get(name)

    async def newest(_: ObjectKey) -> FlagProviderStatus:
        return FlagProviderStatus()

    plans: Any = Plans()
    used: Any = routes
    reconciler = FlagProviderReconciler(secret, newest, Desk().outbox, used, plans, "controller-0", local, "")
    spec = {
        "type": "generic",
        "address": "https://chat.example.com/",
        "certSecretRef": {"name": "certs"},
        "proxySecretRef": {"name": "proxy"},
        **more,
    }
    return (await reconciler.reconcile(thing("FlagProvider", CHAT.name, spec), NOW)).outcome, routes.target


CERTS: Final = {"ca.crt": AUTHORITY, "tls.crt": CERTIFICATE, "tls.key": KEY}
PROXY: Final = {"address": b"http://proxy.example.com:3128", "username": b"ada", "password": b"p@ss"}


def secret_for(content: Mapping[str, bytes], host: str) -> SecretContent:
    return SecretContent(content, Binding("shop", "bound", (host,)))


CHAT_HOST = "chat.example.com"
KEYLESS = {**CERTS, "tls.key": b""}


def through(address: bytes) -> dict[str, Mapping[str, bytes]]:
    return {"certs": CERTS, "proxy": {"address": address}}


def denial_of(host: str) -> tuple[str, str]:
    return "SecretHostDenied", f"host {host}"


async def test_route_has_certificates_and_proxy_of_the_secrets() -> None:
    _, target = await reconcile({"certs": CERTS, "proxy": PROXY})
    assert target is not None
    assert target.route.proxy == "http://ada:p%40ss@proxy.example.com:3128"
    assert target.route.tls == Tls(*(each.decode().strip() for each in (AUTHORITY, CERTIFICATE, KEY)))
    assert target.route.namespace == CHAT.namespace


@pytest.mark.parametrize(
    ("secrets", "kind", "reason", "words"),
    [
        ({"certs": CERTS}, Waiting, "SecretNotFound", 'Secret "proxy" not found'),
        ({"certs": {}, "proxy": PROXY}, Stalled, "InvalidSecret", "has neither 'ca.crt'"),
        ({"certs": KEYLESS, "proxy": PROXY}, Stalled, "InvalidSecret", "'tls.crt' without 'tls.key'"),
        ({"certs": {**CERTS, "tls.key": SERVER.private_key_pem.bytes()}, "proxy": PROXY}, Stalled,
         "InvalidSecret", "certificates of certSecretRef cannot be used"),
        ({"certs": CERTS, "proxy": {}}, Stalled, "InvalidSecret", "key 'address' is missing"),
        (through(b"socks5://x.example.com"), Stalled, "InvalidSecret", "is not a proxy URL"),
        (through(b"http://10.0.0.1:3128"), Stalled, "InvalidAddress", "10.0.0.1 is not a public"),
        ({"certs": CERTS, "proxy": secret_for(PROXY, CHAT_HOST)}, Stalled, *denial_of("proxy.example.com")),
        ({"certs": secret_for(CERTS, "other.example.com"), "proxy": PROXY}, Stalled, *denial_of(CHAT_HOST)),
        (through(b"https://proxy.example.com") | {"certs": secret_for(CERTS, CHAT_HOST)}, Stalled,
         *denial_of("proxy.example.com")),
    ],
)  # fmt: skip
async def test_unusable_secret_is_named(
    secrets: Mapping[str, Mapping[str, bytes]], kind: type, reason: str, words: str
) -> None:
    outcome, target = await reconcile(secrets)
    assert isinstance(outcome, kind)
    assert outcome.reason == reason  # type: ignore[attr-defined]
    assert words in outcome.message  # type: ignore[attr-defined]
    assert "p@ss" not in outcome.message  # type: ignore[attr-defined]
    assert target is None


async def test_proxy_of_plain_http_must_be_an_allowed_host() -> None:
    plain = {"address": "http://chat.example.com/", "secretRef": {"name": "token"}}
    for host, usable in (("chat.example.com", False), ("*.example.com", True)):
        secrets = {"certs": CERTS, "proxy": PROXY, "token": secret_for({"token": b"t"}, host)}
        outcome, target = await reconcile(secrets, local=True, **plain)
        assert (target is not None) is usable
        assert usable or "host proxy.example.com" in outcome.message
