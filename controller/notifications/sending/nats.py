"""One message to a NATS server, over a connection of its own.

https://docs.nats.io/reference/reference-protocols/nats-protocol
https://docs.nats.io/using-nats/developer/connecting/creds; the Secret's keys are Flux's

A common client follows a server to others that it names, encrypts only where the server asks for that, and
reads whatever it is sent. A server that users name gets none of that: we connect to the addresses that were
checked, show nothing in clear unless the address says so, and read a few lines.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from base64 import b32decode, b32encode, b64encode
from binascii import crc_hqx
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from controller.delivery.problems import one_line
from controller.notifications.addresses import NATS, AddressRefused, require_usable
from controller.notifications.sending.posting import ANY, Answer, PublicResolver, why
from controller.runtime.network.client_tls import context_of
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    import ssl

    from controller.notifications.forms.posts import Post, Target
    from controller.runtime.tenancy.hosts import Hosts
    from controller.runtime.user_text.secret_texts import SecretTexts

_LONGEST: Final = 64 * 1024
"""Bytes of a line: the first describes the server."""
_SHOWN: Final = 200
_STATUSES: Final = {"authori": 401, "authenti": 401, "permissions": 403, "maximum payload": 413}
"""Of HTTP, by how the server's complaint begins."""
_PART: Final = r"[^\x00-\x20*.>\x7f-\U0010ffff]+"
SUBJECT: Final = re.compile(rf"{_PART}(?:\.{_PART})*")
"""What may be published to: parts of printable characters, without wildcards."""
_JWT: Final = re.compile(r"-----BEGIN NATS USER JWT-----\s*([!-~]+?)\s*-{4,6}END NATS USER JWT-{4,6}")
_SEED: Final = re.compile(r"-----BEGIN USER NKEY SEED-----\s*([A-Z2-7]+)\s*-{4,6}END USER NKEY SEED-{4,6}")
_USER: Final = 20 << 3
"""First byte of a user's public key, `U` in base 32."""
_OF_SEED: Final = 18 << 3


@dataclass(frozen=True, slots=True)
class Login:
    """One of these ways to log in; with none of them, anonymous."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    """Of a user's key, as nkeys writes it."""
    jwt: str = field(default="", repr=False)
    """What an account says of the key."""

    def shown(self, nonce: str) -> dict[str, str]:
        """Fields of CONNECT, for a server that asks for a signature of `nonce`."""
        if not self.seed:
            found = {"user": self.user, "pass": self.password, "auth_token": self.token}
            return {name: text for name, text in found.items() if text}
        key = _key(self.seed)
        public = bytes([_USER]) + key.public_key().public_bytes_raw()
        encoded = b32encode(public + crc_hqx(public, 0).to_bytes(2, "little")).decode().rstrip("=")
        named = {"jwt": self.jwt} if self.jwt else {"nkey": encoded}
        return {**named, "sig": b64encode(key.sign(nonce.encode())).decode()}


def login_of(secret: SecretTexts) -> Login:
    """`creds`, else `nkey`, else `username` and `password`, else `token` of the Secret. Raises Stalled."""
    if creds := secret.text("creds"):
        jwt, seed = _JWT.search(creds), _SEED.search(creds)
        if jwt is None or seed is None or not _is_seed(seed[1]):
            raise secret.invalid("'creds' is no credentials file of a user")
        return Login(seed=seed[1], jwt=jwt[1])
    if seed_line := secret.line("nkey").strip():
        if not _is_seed(seed_line):
            raise secret.invalid("'nkey' is no seed of a user's key")
        return Login(seed=seed_line)
    user, password = secret.line("username"), secret.line("password")
    if bool(user) != bool(password):
        has, lacks = ("username", "password") if user else ("password", "username")
        raise secret.invalid(f"has {has!r} without {lacks!r}")
    return Login(user, password, "" if user else secret.line("token"))


def _is_seed(text: str) -> bool:
    try:
        _key(text)
    except ValueError:
        return False
    return True


def _key(seed: str) -> Ed25519PrivateKey:
    """Raises ValueError."""
    content = b32decode(seed + "=" * (-len(seed) % 8))
    first = int.from_bytes(content[:2], "big")
    checksum = int.from_bytes(content[34:], "little")
    if len(content) != 36 or first != (_OF_SEED << 8 | _USER << 3) or checksum != crc_hqx(content[:34], 0):
        raise ValueError("not a seed")
    return Ed25519PrivateKey.from_private_bytes(content[2:34])


class _Refused(Exception):
    """The server does not take the message."""

    def __init__(self, why: str) -> None:
        super().__init__(one_line(why, _SHOWN))
        said = why.lower()
        self.status = next((each for words, each in _STATUSES.items() if said.startswith(words)), 502)


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def describes(self) -> dict[str, Any]:
        """What the server says of itself first. Raises ValueError."""
        word, _, text = (await self.reader.readline()).partition(b" ")
        found: Any = json.loads(text) if word.upper() == b"INFO" else None
        if not isinstance(found, dict):
            raise ValueError("no server of NATS")  # noqa: TRY004 - as json has it
        return found

    async def send(self, *content: bytes) -> None:
        """Until the server says that it has all of it. Raises _Refused."""
        self.writer.write(b"".join(content) + b"PING\r\n")
        await self.writer.drain()
        for _ in range(16):
            line = await self.reader.readline()
            if not line:
                raise EOFError
            word, _, rest = line.strip().partition(b" ")
            if word == b"PONG":
                return
            if word == b"-ERR":
                raise _Refused(rest.decode(errors="replace").strip("' "))
            if word == b"PING":
                self.writer.write(b"PONG\r\n")
        raise _Refused("it says too much")

    async def encrypted(self, context: ssl.SSLContext, host: str) -> _Connection:
        """The connection by TLS. Its reader is new: what the old one has came in clear, from anybody."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(_LONGEST)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = await loop.start_tls(self.writer.transport, protocol, context, server_hostname=host)
        if transport is None:
            raise EOFError
        protocol.connection_made(transport)
        return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def publish(post: Post, target: Target, *, allow_local: bool, hosts: Hosts = ANY) -> Answer:
    """What came of it, within the provider's timeout; never raises. A server that answers has the message."""
    timeout = target.spec.timeout
    try:
        require_usable(target.address, allow_local=allow_local, schemes=NATS)
        async with asyncio.timeout(timeout):
            await _publish(post, target, allow_local=allow_local, hosts=hosts)
    except (AddressRefused, Stalled, _Refused, OSError, EOFError, ValueError, RecursionError) as error:
        return _why(error, timeout)
    return Answer(200, "the server has it")


def _why(error: Exception, seconds: float) -> Answer:
    """Why a server does not have the message."""
    if isinstance(error, _Refused):
        return Answer(error.status, f"the server refuses: {error}")
    if said := why(error, seconds):
        return Answer(0, said)
    if isinstance(error, EOFError):
        said = "the connection ended without an answer"
    elif isinstance(error, OSError):
        said = one_line(error.strerror or str(error) or type(error).__name__, _SHOWN)
    else:
        said = "what answers is no server of NATS"
    return Answer(0, said)


async def _publish(post: Post, target: Target, *, allow_local: bool, hosts: Hosts) -> None:
    parts = urlsplit(target.address)
    host, port = parts.hostname or "", parts.port or 4222
    connection = plain = await _connected(host, port, allow_local=allow_local, hosts=hosts)
    try:
        described = await connection.describes()
        encrypted = parts.scheme == NATS[0] or described.get("tls_required") is True
        if encrypted:
            context = await asyncio.to_thread(context_of, target.way.tls)
            connection = await plain.encrypted(context, host)
        login = (target.login or Login()).shown(str(described.get("nonce") or ""))
        us = {"name": "flagstaff-controller", "lang": "python", "version": "1", "headers": True}
        known = json.dumps({**us, "verbose": False, "pedantic": False, "tls_required": encrypted, **login})
        await connection.send(f"CONNECT {known}\r\n".encode())
        lines = "".join(f"{name}: {text}\r\n" for name, text in post.headers.items())
        head = f"NATS/1.0\r\n{lines}\r\n".encode()
        sizes = f"{len(head)} {len(head) + len(post.body)}"
        await connection.send(f"HPUB {target.spec.channel} {sizes}\r\n".encode(), head, post.body, b"\r\n")
    finally:
        connection.writer.transport.abort()
        plain.writer.transport.abort()


async def _connected(host: str, port: int, *, allow_local: bool, hosts: Hosts) -> _Connection:
    """To one of the host's addresses, each of which may be asked. Raises OSError."""
    found = await PublicResolver(allow_local=allow_local, hosts=hosts).resolve(host, port, socket.AF_UNSPEC)
    failed = OSError(f"{host}: no address")
    for each in found[:4]:
        try:
            return _Connection(*await asyncio.open_connection(each["host"], port, limit=_LONGEST))
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            failed = OSError(f"{host}: {'connection refused' if refused else error.strerror or error}")
    raise failed
