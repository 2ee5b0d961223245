"""The credentials for a repository, of which nothing is ever shown.

Secrets have Flux's formats. No message repeats a value: a message names the Secret and its keys only.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from base64 import b64encode
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from controller.api.parsing.git_url import BROKEN, Transport
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.secret_texts import SecretTexts, Tls, pem_blocks, proxy_url

if TYPE_CHECKING:
    from controller.api.parsing.git_url import Location

_PROXIES: Final = ("http", "https", "socks5")
_OPENSSH: Final = b"openssh-key-v1\0\0\0\0\x04none"
"""How a key in OpenSSH's form starts that no password protects (openssh-portable, PROTOCOL.key)."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials, never printed. Raises `Stalled` where they cannot be meant."""

    username: str = field(default="", repr=False)
    """May itself be a token, where there is no password."""
    password: str = field(default="", repr=False)
    ssh_key: str = field(default="", repr=False)
    """A private key in OpenSSH's or PEM form; empty for the user's own keys and agent."""
    known_hosts: str = field(default="", repr=False)
    """Lines of a known_hosts file; empty for the user's own file. An unknown host is always refused."""
    key_password: str = field(default="", repr=False)
    """Opens `ssh_key`, where that is encrypted."""
    bearer: str = field(default="", repr=False)
    """A token for http and https, in place of a username."""
    tls: Tls = field(default=Tls(), repr=False)
    """For https; without an authority the system's are believed."""
    proxy: str = field(default="", repr=False)
    """URL of a proxy for http and https, with its username and password; empty for the environment's."""

    def __post_init__(self) -> None:
        # Git's credential protocol is line by line, and so are headers: a break would end a field and start
        # another.
        lines = (self.username, self.password, self.key_password, self.bearer, self.proxy)
        if any(character in line for line in lines for character in "\n\r\0"):
            raise Stalled("InvalidCredentials", BROKEN)
        if self.password and not self.username:
            raise Stalled("InvalidCredentials", "a password needs a username")
        if self.bearer and self.username:
            message = "a bearer token and a username cannot be used together"
            raise Stalled("InvalidCredentials", message)

    @property
    def identity(self) -> str:
        """Distinguishes two sets of credentials without disclosing them."""
        texts = (getattr(self, own.name) for own in fields(self))
        parts = (text if isinstance(text, str) else "\0".join(text) for text in texts)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secret texts, in every form that a program may print."""
        proxy = urlsplit(self.proxy)
        pairs = (
            (self.username, self.password),
            (unquote(proxy.username or ""), unquote(proxy.password or "")),
        )
        texts = [self.bearer, self.key_password]
        for name, word in pairs:
            texts += [word or name, b64encode(f"{name}:{word}".encode()).decode() if name else ""]
        written = (form for text in texts for form in (text, quote(text, safe="")))
        # The longest first: a shorter one may be part of it.
        return tuple(sorted({text for text in written if text}, key=len, reverse=True))


def credentials_in(location: Location) -> Credentials | None:
    """What the text of the location holds. Raises Stalled where that cannot be meant."""
    return None if location.login is None else Credentials(*location.login)


def credentials_from(secret: SecretTexts, transport: Transport) -> Credentials | None:
    """What the Secret proves, for a repository reached by `transport`; None: nothing.

    http, https: `username` with `password`, or `bearerToken`; `ca.crt` (or `caFile`); `tls.crt` with
    `tls.key`. ssh: `identity` with `known_hosts`, and `password` where the key has one. Raises Stalled
    (InvalidSecret).
    """
    if transport is Transport.FILE:
        return None
    credentials = _ssh(secret) if transport is Transport.SSH else _http(secret)
    return credentials if credentials != Credentials() else None


def with_proxy(credentials: Credentials | None, secret: SecretTexts, transport: Transport) -> Credentials:
    """`credentials` with the proxy of the Secret. Raises Stalled (InvalidSecret)."""
    if transport not in {Transport.HTTP, Transport.HTTPS}:
        raise secret.invalid(f"a proxy can be used with http and https only, not with {transport}")
    return replace(credentials or Credentials(), proxy=proxy_url(secret, _PROXIES))


def _http(secret: SecretTexts) -> Credentials:
    username, password = secret.line("username"), secret.line("password")
    bearer = secret.line("bearerToken")
    if bearer and (username or password):
        raise secret.invalid("has both 'bearerToken' and 'username' or 'password'; remove one of them")
    if bool(username) != bool(password):
        has, lacks = ("username", "password") if username else ("password", "username")
        raise secret.invalid(f"has {has!r} without {lacks!r}")
    return Credentials(username, password, bearer=bearer, tls=secret.tls())


def _ssh(secret: SecretTexts) -> Credentials:
    identity = secret.require("identity", "for ssh")
    known_hosts = secret.require("known_hosts", "for ssh")
    password = secret.line("password")
    locked = _is_encrypted(secret, identity)
    if locked and not password:
        raise secret.invalid("'identity' is an encrypted key; add its passphrase as 'password'")
    return Credentials(ssh_key=identity, known_hosts=known_hosts, key_password=password if locked else "")


def _is_encrypted(secret: SecretTexts, identity: str) -> bool:
    block = next(pem_blocks(identity), None)
    if block is None or "PRIVATE KEY" not in block.label:
        raise secret.invalid("'identity' is not a private key in OpenSSH or PEM format")
    if block.encrypted:
        return True
    if block.label != "OPENSSH PRIVATE KEY":
        return False
    try:
        return not base64.b64decode(block.content).startswith(_OPENSSH)
    except binascii.Error:
        raise secret.invalid("'identity' is damaged: its content is not Base64") from None
