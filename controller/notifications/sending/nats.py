"""One message to a NATS server, over a connection of its own.

https://docs.nats.io/reference/reference-protocols/nats-protocol
https://docs.nats.io/using-nats/developer/connecting/creds; the Secret's keys are Flux's

A common client follows servers that the server announces, encrypts only on the server's request, and reads
without limit. Users name these servers, so we connect only to checked addresses, encrypt unless the address
is `nats:`, and read a few lines.
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

from controller.api.parsing.addresses import NATS, AddressRefused, require_usable
from controller.delivery.problems import one_line
from controller.notifications.sending.posting import ANY, PostResult, PublicResolver, why
from controller.runtime.network.client_tls import context_of
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    import ssl

    from controller.notifications.forms.posts import Post, ProviderTarget
    from controller.runtime.tenancy.hosts import Hosts
    from controller.runtime.user_text.secret_texts import SecretTexts

_LONGEST: Final = 64 * 1024
"""Most bytes of a line; the first one describes the server."""
_SHOWN: Final = 200
_STATUSES: Final = {"authori": 401, "authenti": 401, "permissions": 403, "maximum payload": 413}
"""HTTP status by the beginning of the server's error."""
_JWT: Final = re.compile(r"-----BEGIN NATS USER JWT-----\s*([!-~]+?)\s*-{4,6}END NATS USER JWT-{4,6}")
_SEED: Final = re.compile(r"-----BEGIN USER NKEY SEED-----\s*([A-Z2-7]+)\s*-{4,6}END USER NKEY SEED-{4,6}")
_USER: Final = 20 << 3
"""First byte of a user's public key, `U` in base 32."""
_OF_SEED: Final = 18 << 3


@dataclass(frozen=True, slots=True)
class NatsLogin:
    """One of these ways to log in; with none of them, anonymous."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)
    """Seed of a user's key, in the format of nkeys."""
    jwt: str = field(default="", repr=False)
    """JSON Web Token of an account for the key."""

    def shown(self, nonce: str) -> dict[str, str]:
        """Return the login fields of CONNECT; a key signs the server's `nonce`."""
        if not self.seed:
            found = {"user": self.user, "pass": self.password, "auth_token": self.token}
            return {name: text for name, text in found.items() if text}
        key = _key(self.seed)
        public = bytes([_USER]) + key.public_key().public_bytes_raw()
        encoded = b32encode(public + crc_hqx(public, 0).to_bytes(2, "little")).decode().rstrip("=")
        named = {"jwt": self.jwt} if self.jwt else {"nkey": encoded}
        return {**named, "sig": b64encode(key.sign(nonce.encode())).decode()}


def login_of(secret: SecretTexts) -> NatsLogin:
    """`creds`, else `nkey`, else `username` and `password`, else `token` of the Secret. Raises Stalled."""
    if creds := secret.text("creds"):
        jwt, seed = _JWT.search(creds), _SEED.search(creds)
        if jwt is None or seed is None or not _is_seed(seed[1]):
            raise secret.invalid("'creds' is no credentials file of a user")
        return NatsLogin(seed=seed[1], jwt=jwt[1])
    if seed_line := secret.line("nkey").strip():
        if not _is_seed(seed_line):
            raise secret.invalid("'nkey' is no seed of a user's key")
        return NatsLogin(seed=seed_line)
    user, password = secret.line("username"), secret.line("password")
    if bool(user) != bool(password):
        has, lacks = ("username", "password") if user else ("password", "username")
        raise secret.invalid(f"has {has!r} without {lacks!r}")
    return NatsLogin(user, password, "" if user else secret.line("token"))


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
    """The server refuses the message."""

    def __init__(self, why: str) -> None:
        super().__init__(one_line(why, _SHOWN))
        said = why.lower()
        self.status = next((each for words, each in _STATUSES.items() if said.startswith(words)), 502)


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def describes(self) -> dict[str, Any]:
        """Parse the server's INFO line. Raises ValueError."""
        word, _, text = (await self.reader.readline()).partition(b" ")
        found: Any = json.loads(text) if word.upper() == b"INFO" else None
        if not isinstance(found, dict):
            raise ValueError("not a NATS server")  # noqa: TRY004 - as json has it
        return found

    async def send(self, *content: bytes) -> None:
        """Send the message and wait until the server has received all of it. Raises _Refused."""
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
        raise _Refused("its line is too long")

    async def encrypted(self, context: ssl.SSLContext, host: str) -> _Connection:
        """Start TLS. Returns a new reader: the old one may hold unauthenticated bytes."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(_LONGEST)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = await loop.start_tls(self.writer.transport, protocol, context, server_hostname=host)
        if transport is None:
            raise EOFError
        protocol.connection_made(transport)
        return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def publish(post: Post, target: ProviderTarget, *, allow_local: bool, hosts: Hosts = ANY) -> PostResult:
    """Publish within the provider's timeout; never raises. A server that answers has the message."""
    timeout = target.spec.timeout
    try:
        require_usable(target.address, allow_local=allow_local, schemes=NATS)
        async with asyncio.timeout(timeout):
            await _publish(post, target, allow_local=allow_local, hosts=hosts)
    except (AddressRefused, Stalled, _Refused, OSError, EOFError, ValueError, RecursionError) as error:
        return _why(error, timeout)
    return PostResult(200, "the server has accepted it")


def _why(error: Exception, seconds: float) -> PostResult:
    """Return why the server does not have the message."""
    if isinstance(error, _Refused):
        return PostResult(error.status, f"the server refuses: {error}")
    if said := why(error, seconds):
        return PostResult(0, said)
    if isinstance(error, EOFError):
        said = "the connection ended without an answer"
    elif isinstance(error, OSError):
        said = one_line(error.strerror or str(error) or type(error).__name__, _SHOWN)
    else:
        said = "what answers is not a NATS server"
    return PostResult(0, said)


async def _publish(post: Post, target: ProviderTarget, *, allow_local: bool, hosts: Hosts) -> None:
    parts = urlsplit(target.address)
    host, port = parts.hostname or "", parts.port or 4222
    connection = plain = await _connected(host, port, allow_local=allow_local, hosts=hosts)
    try:
        described = await connection.describes()
        encrypted = parts.scheme == NATS[0] or described.get("tls_required") is True
        if encrypted:
            context = await asyncio.to_thread(context_of, target.way.tls)
            connection = await plain.encrypted(context, host)
        login = (target.login or NatsLogin()).shown(str(described.get("nonce") or ""))
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
    """Connect to one of the host's checked addresses. Raises OSError."""
    found = await PublicResolver(allow_local=allow_local, hosts=hosts).resolve(host, port, socket.AF_UNSPEC)
    failed = OSError(f"{host}: no address")
    for each in found[:4]:
        try:
            return _Connection(*await asyncio.open_connection(each["host"], port, limit=_LONGEST))
        except OSError as error:
            refused = isinstance(error, ConnectionRefusedError)
            failed = OSError(f"{host}: {'connection refused' if refused else error.strerror or error}")
    raise failed
