"""Logs in to a NATS server. Pure.

https://docs.nats.io/using-nats/developer/connecting/creds; the Secret's keys are Flux's
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode, b64encode
from binascii import crc_hqx
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

if TYPE_CHECKING:
    from controller.runtime.user_text.secret_texts import SecretTexts

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
        named = {"jwt": self.jwt} if self.jwt else {"nkey": _public(key)}
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


def _public(key: Ed25519PrivateKey) -> str:
    content = bytes([_USER]) + key.public_key().public_bytes_raw()
    return b32encode(content + crc_hqx(content, 0).to_bytes(2, "little")).decode().rstrip("=")
