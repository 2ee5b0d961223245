"""Secrets in Flux's formats as credentials
(https://fluxcd.io/flux/components/source/gitrepositories/#secret-reference). Pure.

No message repeats a value: what is wrong is told by the Secret's name and its keys.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from controller.runtime.setbacks import Stalled
from controller.sources.git.git_url import Credentials, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST: Final = 64 * 1024
"""Bytes of one value: a bundle of certificates has less, and it is written to a file for each run of git."""
_LONGEST_PROXY: Final = 2048
"""As with Flux."""
_PROXIES: Final = ("http", "https", "socks5")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_OPENSSH: Final = b"openssh-key-v1\0\0\0\0\x04none"
"""How a key in OpenSSH's form starts that no password protects (openssh-portable, PROTOCOL.key)."""


def credentials_from(name: str, content: Mapping[str, bytes], transport: Transport) -> Credentials | None:
    """What the Secret `name` (`namespace/name`) proves, for a repository reached by `transport`; None:
    nothing.

    http, https: `username` with `password`, or `bearerToken`; `ca.crt` (or `caFile`); `tls.crt` with
    `tls.key`. ssh: `identity` with `known_hosts`, and `password` where the key has one. Raises Stalled
    (InvalidSecret).
    """
    secret = _Secret(name, content)
    if transport is Transport.FILE:
        return None
    found = _ssh(secret) if transport is Transport.SSH else _http(secret)
    return found if found != Credentials() else None


def with_proxy(
    credentials: Credentials | None, name: str, content: Mapping[str, bytes], transport: Transport
) -> Credentials:
    """`credentials` that go by the proxy of the Secret `name`: `address`, and where needed `username` and
    `password`.

    Raises Stalled (InvalidSecret).
    """
    secret = _Secret(name, content)
    if transport not in {Transport.HTTP, Transport.HTTPS}:
        raise secret.invalid(f"a proxy can be used with http and https only, not with {transport}")
    address = secret.required("address", "for a proxy")
    try:
        parts = urlsplit(address)
        known = parts.scheme in _PROXIES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, known = urlsplit(""), False
    if not known or len(address) > _LONGEST_PROXY or parts.query or parts.fragment:
        schemes = ", ".join(f"{scheme}://" for scheme in _PROXIES)
        raise secret.invalid(f"'address' is not a proxy URL; write one of {schemes} with a host")
    if parts.username is not None:
        raise secret.invalid("'address' holds a username: write 'username' and 'password' instead")
    username, password = secret.line("username"), secret.line("password")
    if password and not username:
        raise secret.invalid("has 'password' without 'username'")
    if username:
        pair = f"{quote(username, safe='')}:{quote(password, safe='')}"
        parts = parts._replace(netloc=f"{pair}@{parts.netloc}")
    return replace(credentials or Credentials(), proxy=parts.geturl())


def _http(secret: _Secret) -> Credentials:
    username, password = secret.line("username"), secret.line("password")
    bearer = secret.line("bearerToken")
    if bearer and (username or password):
        raise secret.invalid("has both 'bearerToken' and 'username' or 'password'; remove one of them")
    if bool(username) != bool(password):
        has, lacks = ("username", "password") if username else ("password", "username")
        raise secret.invalid(f"has {has!r} without {lacks!r}")
    certificate = secret.pem("tls.crt", "CERTIFICATE")
    key = secret.pem("tls.key", "PRIVATE KEY")
    if bool(certificate) != bool(key):
        has, lacks = ("tls.crt", "tls.key") if certificate else ("tls.key", "tls.crt")
        raise secret.invalid(f"has {has!r} without {lacks!r}")
    return Credentials(
        username=username,
        password=password,
        bearer=bearer,
        authority=secret.pem("ca.crt", "CERTIFICATE") or secret.pem("caFile", "CERTIFICATE"),
        certificate=certificate,
        certificate_key=key,
    )


def _ssh(secret: _Secret) -> Credentials:
    identity = secret.required("identity", "for ssh")
    known_hosts = secret.required("known_hosts", "for ssh")
    password = secret.line("password")
    locked = _locked(secret, identity)
    if locked and not password:
        raise secret.invalid("'identity' is an encrypted key; add its passphrase as 'password'")
    return Credentials(ssh_key=identity, known_hosts=known_hosts, key_password=password if locked else "")


def _locked(secret: _Secret, identity: str) -> bool:
    """Whether a password protects the private key."""
    block = _PEM.search(identity)
    if block is None or "PRIVATE KEY" not in block[1]:
        raise secret.invalid("'identity' is not a private key in OpenSSH or PEM format")
    if "ENCRYPTED" in block[1] or "Proc-Type: 4,ENCRYPTED" in block[2]:
        return True
    if block[1] != "OPENSSH PRIVATE KEY":
        return False
    try:
        return not base64.b64decode(block[2]).startswith(_OPENSSH)
    except binascii.Error:
        raise secret.invalid("'identity' is damaged: its content is not Base64") from None


class _Secret:
    """One Secret's texts by their keys."""

    def __init__(self, name: str, content: Mapping[str, bytes]) -> None:
        self._name = name
        self._content = content

    def invalid(self, why: str) -> Stalled:
        """The setback for what is wrong with it."""
        return Stalled("InvalidSecret", f"Secret {self._name}: {why}")

    def text(self, key: str) -> str:
        """Empty where there is none."""
        raw = self._content.get(key, b"")
        if len(raw) > _LONGEST:
            raise self.invalid(f"{key!r} is longer than {_LONGEST} bytes")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self.invalid(f"{key!r} is not UTF-8 text") from None
        if "\0" in text:
            raise self.invalid(f"{key!r} contains a NUL character")
        return text.replace("\r\n", "\n")

    def line(self, key: str) -> str:
        """One line; what an editor or `echo` put at its end is no part of it."""
        text = self.text(key).removesuffix("\n")
        if not text.isprintable():
            raise self.invalid(f"{key!r} contains a line break or a control character")
        return text

    def required(self, key: str, purpose: str) -> str:
        """A text that must be there."""
        if text := self.text(key).strip():
            return text
        has = ", ".join(map(repr, sorted(self._content)[:10])) or "no key at all"
        raise self.invalid(f"key {key!r} is missing, which is required {purpose}; the Secret has {has}")

    def pem(self, key: str, kind: str) -> str:
        """Blocks of PEM, one of them at least of `kind`; empty where there is none."""
        text = self.text(key).strip()
        if text and not any(kind in block[1] for block in _PEM.finditer(text)):
            raise self.invalid(f"{key!r} contains no {kind.lower()} in PEM format")
        return text
