"""Secrets in Flux's formats as credentials
(https://fluxcd.io/flux/components/source/gitrepositories/#secret-reference). Pure.

No message repeats a value: a message names the Secret and its keys only.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.runtime.user_text.secret_texts import PEM, SecretTexts, proxy_url
from controller.sources.git.git_url import Credentials, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROXIES: Final = ("http", "https", "socks5")
_OPENSSH: Final = b"openssh-key-v1\0\0\0\0\x04none"
"""How a key in OpenSSH's form starts that no password protects (openssh-portable, PROTOCOL.key)."""


def credentials_from(name: str, content: Mapping[str, bytes], transport: Transport) -> Credentials | None:
    """What the Secret `name` (`namespace/name`) proves, for a repository reached by `transport`; None:
    nothing.

    http, https: `username` with `password`, or `bearerToken`; `ca.crt` (or `caFile`); `tls.crt` with
    `tls.key`. ssh: `identity` with `known_hosts`, and `password` where the key has one. Raises Stalled
    (InvalidSecret).
    """
    secret = SecretTexts(name, content)
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
    secret = SecretTexts(name, content)
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
    tls = secret.tls()
    return Credentials(
        username=username,
        password=password,
        bearer=bearer,
        authority=tls.authority,
        certificate=tls.certificate,
        certificate_key=tls.key,
    )


def _ssh(secret: SecretTexts) -> Credentials:
    identity = secret.required("identity", "for ssh")
    known_hosts = secret.required("known_hosts", "for ssh")
    password = secret.line("password")
    locked = _locked(secret, identity)
    if locked and not password:
        raise secret.invalid("'identity' is an encrypted key; add its passphrase as 'password'")
    return Credentials(ssh_key=identity, known_hosts=known_hosts, key_password=password if locked else "")


def _locked(secret: SecretTexts, identity: str) -> bool:
    block = PEM.search(identity)
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
