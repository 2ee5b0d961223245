"""Signatures by security keys, which no machine of CI has: made here as such a key makes them."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from controller.sources.backend import NotBelievedError, Signer
from controller.sources.signing_keys import SshKey, verify_ssh

AT = datetime(2026, 1, 2, tzinfo=UTC)
APPLICATION, MESSAGE = b"ssh:", b"turn it on"
TOUCHED, UNTOUCHED = b"\1\0\0\0\7", b"\0\0\0\0\7"
KINDS = {"sk-ssh-ed25519@openssh.com": "ed25519", "sk-ecdsa-sha2-nistp256@openssh.com": "ecdsa"}


def string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def number(value: int) -> bytes:
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big"))


def sign_message(kind: str, state: bytes) -> tuple[SshKey, bytes]:
    """A key, and its signature of MESSAGE in armor."""
    content = b"SSHSIG" + b"".join(map(string, (b"git", b"", b"sha512", hashlib.sha512(MESSAGE).digest())))
    whole = hashlib.sha256(APPLICATION).digest() + state + hashlib.sha256(content).digest()
    if KINDS[kind] == "ed25519":
        private = ed25519.Ed25519PrivateKey.generate()
        public = string(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
        made = private.sign(whole)
    else:
        other = ec.generate_private_key(ec.SECP256R1())
        point = other.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        public = string(b"nistp256") + string(point)
        made = b"".join(map(number, decode_dss_signature(other.sign(whole, ec.ECDSA(hashes.SHA256())))))
    blob = string(kind.encode()) + public + string(APPLICATION)
    parts = (blob, b"git", b"", b"sha512", string(kind.encode()) + string(made) + state)
    text = base64.b64encode(b"SSHSIG\0\0\0\1" + b"".join(map(string, parts)))
    armored = b"-----BEGIN SSH SIGNATURE-----\n" + text + b"\n-----END SSH SIGNATURE-----\n"
    return SshKey(kind, base64.b64encode(blob).decode(), "Ada"), armored


@pytest.mark.parametrize("kind", KINDS)
def test_a_security_key_that_was_touched_signs(kind: str) -> None:
    key, armored = sign_message(kind, TOUCHED)
    assert verify_ssh(MESSAGE, armored, [key], AT) == Signer(f"SSH {key.fingerprint}", "Ada")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("message", "state", "why"),
    [(MESSAGE, UNTOUCHED, "without a touch"), (b"turn it off", TOUCHED, "not of its content")],
)
def test_neither_another_content_nor_a_key_that_nobody_touched_is_believed(
    kind: str, message: bytes, state: bytes, why: str
) -> None:
    key, armored = sign_message(kind, state)
    with pytest.raises(NotBelievedError, match=why):
        verify_ssh(message, armored, [key], AT)
