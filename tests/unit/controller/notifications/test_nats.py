"""Messages to a real NATS server, read by NATS' own client; and servers that are not what they should be."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from binascii import crc_hqx
from typing import TYPE_CHECKING, Any, Final

import nats
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.api.provider import SUBJECT, FlagProviderSpec
from controller.notifications.forms.payloads import post_of
from controller.notifications.forms.posts import ProviderTarget, Way
from controller.notifications.sending.nats import login_of, publish
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.secret_texts import SecretTexts, Tls
from tests.nats.program import running
from tests.unit.controller.notifications.test_ways import bound, reconciled
from tests.unit.controller.notifications.things import message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from controller.notifications.sending.posting import PostResult

OURS: Final = trustme.CA()


def target(
    address: str, secret: Mapping[str, bytes] | None = None, seconds: float = 30.0, **way: Any
) -> ProviderTarget:
    spec = FlagProviderSpec(type="nats", channel="flags.shop", timeout=seconds)
    login = login_of(SecretTexts("nats", secret or {}))
    return ProviderTarget(spec, address, "", "shop", "controller-0", Way(**way), login=login)


async def send(found: ProviderTarget, key: str = "k", *, local: bool = True) -> PostResult:
    return await publish(post_of(message(key), found), found, allow_local=local)


# -- keys, as nkeys writes them ------------------------------------------------------------------------------


class Nkey:
    """One of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.kind = kind << 3
        self.public = self._written(bytes([self.kind]) + self.key.public_key().public_bytes_raw())
        prefix = (18 << 11 | self.kind << 3).to_bytes(2, "big")
        self.seed = self._written(prefix + self.key.private_bytes_raw())

    @staticmethod
    def _written(content: bytes) -> str:
        checked = content + crc_hqx(content, 0).to_bytes(2, "little")
        return base64.b32encode(checked).decode().rstrip("=")

    def says(self, of: Nkey, **claims: Any) -> str:
        """A JSON Web Token about another key."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        body = {
            "jti": "1", "iat": 1, "iss": self.public, "sub": of.public, "name": "n",
            "nats": {"version": 2, **claims},
        }  # fmt: skip
        parts = [
            base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in (head, body)
        ]
        signature = self.key.sign(".".join(parts).encode())
        return ".".join((*parts, base64.urlsafe_b64encode(signature).rstrip(b"=").decode()))


OPERATOR, ACCOUNT, USER = Nkey(14), Nkey(0), Nkey(20)
LIMITS: Final = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {
    "wildcards": True
}
CREDS: Final = f"""-----BEGIN NATS USER JWT-----
{ACCOUNT.says(USER, type="user", subs=-1, data=-1, payload=-1)}
------END NATS USER JWT------

************************* IMPORTANT *************************
-----BEGIN USER NKEY SEED-----
{USER.seed}
------END USER NKEY SEED------
"""
OPERATED: Final = (
    f"operator: {OPERATOR.says(OPERATOR, type='operator')}\nresolver: MEMORY\n"
    f"resolver_preload: {{ {ACCOUNT.public}: {OPERATOR.says(ACCOUNT, type='account', limits=LIMITS)} }}\n"
)


# -- a real server -------------------------------------------------------------------------------------------


async def test_a_message_is_stored_once_by_jetstream_however_often_it_is_sent(tmp_path: Path) -> None:
    with running(tmp_path, f'jetstream: {{store_dir: "{tmp_path}/jetstream"}}') as port:
        address = f"nats://127.0.0.1:{port}"
        client = await nats.connect(address)
        stream = client.jetstream()
        await stream.add_stream(name="flags", subjects=["flags.>"])
        for key in ("k1", "k1", "k2"):
            assert (await send(target(address), key)).text == "the server has accepted it"
        found = await stream.pull_subscribe("flags.shop", durable="reader")
        read = await found.fetch(2, timeout=30)
        info = await stream.stream_info("flags")
        await client.close()
    assert info.state.messages == 2
    headers = read[0].headers or {}
    assert (headers["Nats-Msg-Id"], headers["Content-Type"]) == ("k1", "application/json")
    event = json.loads(read[0].data)
    assert (event["reason"], event["metadata"]["flagstaff.dev/idempotency-key"]) == ("Applied", "k1")


ANONYMOUS: Final[dict[str, bytes]] = {}
LOGINS: Final = [
    ('authorization: {user: "ada", password: "pass"}', {"username": b"ada", "password": b"pass\n"},
     {"username": b"ada", "password": b"no"}),
    ('authorization: {token: "the-token"}', {"token": b"the-token"}, {"token": b"no"}),
    (f"authorization: {{users: [{{nkey: {USER.public}}}]}}", {"nkey": USER.seed.encode()},
     {"nkey": Nkey(20).seed.encode()}),
    (OPERATED, {"creds": CREDS.encode()}, {"creds": CREDS.replace(USER.seed, Nkey(20).seed).encode()}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("configuration", "right", "wrong"), LOGINS, ids=["password", "token", "nkey", "creds"]
)
async def test_a_server_accepts_the_credentials_of_the_secret(
    tmp_path: Path, configuration: str, right: Mapping[str, bytes], wrong: Mapping[str, bytes]
) -> None:
    with running(tmp_path, configuration) as port:
        address = f"nats://127.0.0.1:{port}"
        assert (await send(target(address, right))).status == 200
        for secret in (wrong, ANONYMOUS):
            answer = await send(target(address, secret))
            assert (answer.status, answer.text) == (401, "the server refuses: Authorization Violation")


async def test_a_subject_that_one_may_not_publish_to_is_named(tmp_path: Path) -> None:
    users = 'authorization: {users: [{user: "ada", password: "p", permissions: {publish: "other"}}]}'
    with running(tmp_path, users) as port:
        answer = await send(target(f"nats://127.0.0.1:{port}", {"username": b"ada", "password": b"p"}))
    assert answer.status == 403
    assert "Permissions Violation" in answer.text
    assert "flags.shop" in answer.text


async def test_what_is_too_long_for_the_server_is_given_up(tmp_path: Path) -> None:
    with running(tmp_path, "max_payload: 100") as port:
        assert (await send(target(f"nats://127.0.0.1:{port}"))).status == 413


async def test_a_connection_is_encrypted_and_the_server_is_known(tmp_path: Path) -> None:
    issued = OURS.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    files = f'tls: {{cert_file: "{tmp_path}/tls.crt", key_file: "{tmp_path}/tls.key"}}'
    believed = Tls(OURS.cert_pem.bytes().decode())
    with running(tmp_path, files) as port:
        for scheme in ("tls", "nats"):
            assert (await send(target(f"{scheme}://localhost:{port}", tls=believed))).status == 200
        assert (await send(target(f"tls://localhost:{port}"))).status == 0
        assert (await send(target(f"tls://127.0.0.1:{port}", tls=believed))).status == 0


# -- others --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def server(
    *lines: bytes, forever: bytes = b"", then: bytes = b""
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """(port, what it was sent) of one that says this, then nothing, or `forever`, or `then` to each read."""
    sent: list[bytes] = []
    tasks: list[asyncio.Task[None] | None] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(OSError):
            writer.write(b"".join(lines))
            while forever:
                writer.write(forever)
                await writer.drain()
            while content := await reader.read(65_536):
                sent.append(content)
                writer.write(then)
        writer.transport.abort()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1], sent
    finally:
        listening.close()
        # The server that we connected to notices that we are gone.
        await asyncio.gather(*(each for each in tasks if each is not None))


async def test_a_server_that_does_not_encrypt_is_shown_nothing() -> None:
    async with server(b'INFO {"headers":true}\r\n', then=b"PONG\r\n") as (port, sent):
        answer = await send(target(f"tls://localhost:{port}", {"token": b"secret"}))
        assert answer.status == 0
    assert sent[0].startswith(b"\x16\x03")
    assert b"CONNECT" not in b"".join(sent)


async def test_answers_that_came_in_clear_are_none_of_the_encrypted_server() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    OURS.issue_cert("localhost").configure_cert(context)
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"INFO {}\r\nPONG\r\nPONG\r\n")
            await writer.start_tls(context)
            while await reader.read(65_536):
                pass
        left.set()
        writer.transport.abort()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    answer = await send(
        target(f"tls://localhost:{port}", seconds=1.0, tls=Tls(OURS.cert_pem.bytes().decode()))
    )
    assert (answer.status, answer.text) == (0, "no answer within 1 s")
    await left.wait()
    listening.close()


@pytest.mark.parametrize(
    ("lines", "forever", "said"),
    [
        ((b"HTTP/1.1 400 Bad Request\r\n",), b"", "what answers is not a NATS server"),
        ((b"INFO []\r\n",), b"", "what answers is not a NATS server"),
        ((b"INFO " + b"[" * 60_000 + b"\r\n",), b"", "what answers is not a NATS server"),
        ((), b"x" * 4_096, "what answers is not a NATS server"),
        ((b"INFO {}\r\n",), b"+OK\r\n", "the server refuses: its line is too long"),
        ((b"INFO {}\r\n", b"MSG x 1 99999999999\r\n"), b"x" * 4_096, "what answers is not a NATS server"),
        ((b"INFO {}\r\n", b"-ERR '\x1b[31m\xff" + b"x" * 9_000 + b"'\r\n"), b"", "the server refuses: "),
        ((b"INFO {}\r\n",), b"", "no answer within 0.5 s"),
    ],
    ids=["http", "a list", "deep", "no line", "talk", "a long message", "dirt", "silence"],
)  # fmt: skip
async def test_of_what_a_server_says_little_is_read(
    lines: tuple[bytes, ...], forever: bytes, said: str
) -> None:
    seconds = 0.5 if "no answer" in said else 30.0
    async with server(*lines, forever=forever) as (port, _):
        answer = await send(target(f"nats://127.0.0.1:{port}", seconds=seconds))
    assert answer.text.startswith(said)
    assert answer.text.isprintable()
    assert len(answer.text) < 250


async def test_a_server_is_where_providers_may_be() -> None:
    async with server(b"INFO {}\r\n") as (port, sent):
        answer = await send(target(f"tls://localhost:{port}"), local=False)
        assert "is not a public address" in answer.text
        plain = await send(target("nats://nats.example.com"), local=False)
        assert plain.text == "the address cannot be used: it must begin with tls://"
    assert sent == []
    assert (await send(target(f"nats://127.0.0.1:{port}"))).text == "127.0.0.1: connection refused"


# -- the provider --------------------------------------------------------------------------------------------


async def provider(secret: Mapping[str, bytes], **more: Any) -> tuple[Any, ProviderTarget | None]:
    none: dict[str, Any] = {"certSecretRef": None, "proxySecretRef": None, "secretRef": {"name": "nats"}}
    spec = {"type": "nats", "address": "tls://nats.example.com", "channel": "flags.shop", **none}
    return await reconciled({"nats": secret}, **{**spec, **more})


async def test_a_provider_has_its_subject_and_its_login() -> None:
    _, found = await provider({"token": b"t"})
    assert found is not None
    assert (found.spec.channel, found.login) == ("flags.shop", login_of(SecretTexts("n", {"token": b"t"})))
    assert "t'" not in repr(found.login).replace("flagstaff", "")


@pytest.mark.parametrize(
    ("more", "reason", "said"),
    [
        ({"channel": None}, "ChannelNotFound", "spec.channel: type nats needs it"),
        ({"channel": "flags.>"}, "InvalidSpec", "not a subject"),
        ({"address": "https://nats.example.com"}, "InvalidAddress", "such as tls://host"),
        ({"address": "nats://nats.example.com"}, "InvalidAddress", "must begin with tls://"),
        ({"proxySecretRef": {"name": "nats"}}, "InvalidSpec", "is reached directly"),
    ],
)
async def test_a_missing_field_is_named(more: dict[str, Any], reason: str, said: str) -> None:
    outcome, found = await provider({}, **more)
    assert (outcome.reason, found) == (reason, None)
    assert said in outcome.message


async def test_a_secret_is_shown_to_its_hosts_alone() -> None:
    outcome, _ = await provider(bound({"token": b"t"}, "other.example.com"))
    assert outcome.reason == "SecretHostDenied"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"creds": b"x"}, "'creds' is no credentials file"),
        ({"creds": CREDS.replace(USER.seed, USER.seed[:-1]).encode()}, "'creds' is no credentials file"),
        ({"nkey": ACCOUNT.seed.encode()}, "'nkey' is no seed"),
        ({"nkey": b"SU"}, "'nkey' is no seed"),
        ({"nkey": USER.public.encode()}, "'nkey' is no seed"),
        ({"username": b"ada"}, "'username' without 'password'"),
        ({"password": b"p"}, "'password' without 'username'"),
    ],
)
def test_what_is_wrong_with_a_secret_is_named(content: Mapping[str, bytes], said: str) -> None:
    with pytest.raises(Stalled, match=said) as found:
        login_of(SecretTexts("nats", content))
    assert USER.seed not in found.value.message


def test_a_subject_has_no_wildcards() -> None:
    assert SUBJECT.fullmatch("flags.shop-1.$x")
    for each in ("", ".", "a..b", "a.*", "a.>", "a b", "a\r\n", "ä"):
        assert not SUBJECT.fullmatch(each)
