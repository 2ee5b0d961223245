"""GitHub Apps, whose tokens a real server gives to a client that signs as GitHub documents."""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from controller.events.deliverer import app_token
from controller.events.git_servers import Grant, app_of
from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Stalled
from tests.unit.controller.events.test_deliverer import Office
from tests.unit.controller.events.test_provider_secrets import reconcile, secret_for
from tests.waiting import run_beside
from tests.web_server import web_server
from tests.worlds.events import CHAT, NOW, Desk, alert, http_sender, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.events.notice import ProviderTarget

KEY: Final = rsa.generate_private_key(65537, 2048)
OTHER: Final = rsa.generate_private_key(65537, 2048)


def pem(key: Any, password: bytes = b"") -> bytes:
    closed = BestAvailableEncryption(password) if password else NoEncryption()
    form: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, closed)
    return form


APP: Final[dict[str, bytes]] = {
    "githubAppID": b"123456\n",
    "githubAppInstallationID": b"789",
    "githubAppPrivateKey": pem(KEY),
}


def signer(token: str) -> str:
    """The App that a JSON Web Token is of. Raises what is wrong with it."""
    head, claims, signature = token.split(".")
    KEY.public_key().verify(read(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), SHA256())
    assert json.loads(read(head)) == {"alg": "RS256", "typ": "JWT"}
    said, now = json.loads(read(claims)), NOW.timestamp()
    assert said["iat"] <= now < said["exp"] <= now + 600
    return str(said["iss"])


def read(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


class GitHub:
    """A server of one's own, with one App, installed once; a token of it is good for an hour."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.revoked: set[str] = set()
        self.statuses: list[str] = []
        self.address = ""

    async def grant(self, request: web.Request) -> web.Response:
        try:
            assert signer(request.headers["Authorization"].removeprefix("Bearer ")) == "123456"
        except (InvalidSignature, AssertionError):
            return web.json_response({"message": "A JSON web token could not be decoded"}, status=401)
        if request.match_info["installation"] != "789":
            return web.json_response({"message": "Not Found"}, status=404)
        self.tokens.append(f"ghs_{len(self.tokens)}")
        until = (NOW + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return web.json_response({"token": self.tokens[-1], "expires_at": until}, status=201)

    async def status(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        if token not in self.tokens or token in self.revoked:
            return web.json_response({"message": "Bad credentials"}, status=401)
        self.statuses.append(token)
        return web.json_response({"id": 1}, status=201)


@contextlib.asynccontextmanager
async def github() -> AsyncIterator[GitHub]:
    found, routes = GitHub(), []
    grants, statuses = "/app/installations/{installation}/access_tokens", "/repos/shop/flags/statuses/{sha}"
    for base in ("/api/v3", "/other"):
        routes += [web.post(base + grants, found.grant), web.post(base + statuses, found.status)]
    async with web_server(*routes) as port:
        found.address = f"http://127.0.0.1:{port}"
        yield found


async def target_of(
    server: str, secret: Mapping[str, bytes], *, local: bool = True
) -> tuple[Any, ProviderTarget | None]:
    more: dict[str, Any] = {"secretRef": {"name": "app"}, "certSecretRef": None, "proxySecretRef": None}
    return await reconcile(
        {"app": secret}, local=local, type="github", address=f"{server}/shop/flags", **more
    )


@contextlib.asynccontextmanager
async def office(target: ProviderTarget) -> AsyncIterator[Office]:
    """Delivers by real requests."""
    async with http_sender() as sender:
        found = Office(Desk(alert()), sender)
        async with run_beside(found.deliverer.run()):
            found.deliverer.use(CHAT, target)
            yield found


def push(found: Office, *keys: str) -> None:
    for key in keys:
        found.desk.box.push(message(key))
    found.store()


async def test_statuses_are_written_with_one_token_for_its_life() -> None:
    async with github() as server:
        _, target = await target_of(server.address, APP)
        assert target is not None
        async with office(target) as found:
            push(found, "1", "2")
            await found.until(2)
    assert found.results == [("github", "delivered")] * 2
    assert server.statuses == ["ghs_0", "ghs_0"]
    assert "PRIVATE KEY" not in repr(target)


async def test_a_token_that_is_revoked_is_replaced() -> None:
    async with github() as server:
        _, target = await target_of(server.address, APP)
        assert target is not None
        async with office(target) as found:
            push(found, "1")
            await found.until(1)
            server.revoked.add("ghs_0")
            push(found, "2")
            await found.until(3)
    assert [result for _, result in found.results] == ["delivered", "failed", "delivered"]
    assert server.statuses == ["ghs_0", "ghs_1"]


async def test_a_token_is_asked_for_anew_minutes_before_its_end() -> None:
    async with github() as server, http_sender() as sender:
        _, target = await target_of(server.address, APP)
        assert target is not None
        assert target.app is not None
        first = await app_token(sender, target, target.app, None, NOW)
        assert first == Grant("ghs_0", NOW + timedelta(minutes=55))
        assert await app_token(sender, target, target.app, first, NOW + timedelta(minutes=54)) is first
        assert await app_token(sender, target, target.app, replace(first, until=NOW), NOW) != first
        assert server.tokens == ["ghs_0", "ghs_1"]


@pytest.mark.parametrize(
    ("more", "said"),
    [({"githubAppInstallationID": b"1"}, "status 404"), ({"githubAppPrivateKey": pem(OTHER)}, "status 401")],
)
async def test_an_app_that_is_not_known_costs_no_message(more: Mapping[str, bytes], said: str) -> None:
    async with github() as server:
        _, target = await target_of(server.address, {**APP, **more})
        assert target is not None
        async with office(target) as found:
            push(found, "1")
            await found.until(1)
            (delivery,) = found.deliverer.last(CHAT)
    assert found.results == [("github", "failed")]
    assert delivery.message.startswith(f"no token for the GitHub App: {said}")


async def test_the_api_may_be_elsewhere() -> None:
    async with github() as server:
        base = f"{server.address}/other/".encode()
        _, target = await target_of("http://127.0.0.2:1", {**APP, "githubAppBaseURL": base})
        assert target is not None
        async with office(target) as found:
            push(found, "1")
            await found.until(1)
    assert server.statuses == ["ghs_0"]


async def test_what_the_secret_is_bound_to_holds_for_the_api() -> None:
    secret = {**APP, "githubAppBaseURL": b"https://api.other.example.com"}
    outcome, target = await target_of(
        "https://git.example.com", secret_for(secret, "git.example.com"), local=False
    )
    assert (outcome.reason, target) == ("SecretHostDenied", None)
    secret["githubAppBaseURL"] = b"http://api.other.example.com"
    outcome, _ = await target_of("https://git.example.com", secret, local=False)
    assert outcome.message == "githubAppBaseURL cannot be used: it must begin with https://"


@pytest.mark.parametrize(
    ("key", "content", "said"),
    [
        ("ID", b"", "'githubAppID' is missing"),
        ("ID", b"a/b", "neither an App's number"),
        ("InstallationID", b"", "'githubAppInstallationID' is missing"),
        ("InstallationID", b"x", "not a number"),
        ("PrivateKey", b"", "'githubAppPrivateKey' is missing"),
        ("PrivateKey", b"x", "contains no private key"),
        ("PrivateKey", pem(KEY, b"secret"), "without a password"),
        ("PrivateKey", pem(KEY)[:900], "contains no private key"),
        ("PrivateKey", pem(ec.generate_private_key(ec.SECP256R1())), "not an RSA key"),
        ("PrivateKey", pem(KEY) + b"#" * 4096, "at most 4096 bits"),
    ],
)
def test_a_missing_key_of_a_secret_is_named(key: str, content: bytes, said: str) -> None:
    with pytest.raises(Stalled, match=said) as found:
        app_of(SecretTexts("app", {**APP, f"githubApp{key}": content}))
    assert "BEGIN" not in found.value.message


def test_a_secret_of_another_kind_is_no_app() -> None:
    assert app_of(SecretTexts("app", {"token": b"t"})) is None
