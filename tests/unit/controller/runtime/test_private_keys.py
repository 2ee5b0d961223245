"""Private keys of Secrets: what takes long to read or to use is refused at once."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from controller.runtime.private_keys import read_private_key

if TYPE_CHECKING:
    from collections.abc import Sequence

RSA = rsa.generate_private_key(65537, 2048)


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes = b"") -> str:
    closed = BestAvailableEncryption(password) if password else NoEncryption()
    text: bytes = key.private_bytes(Encoding.PEM, form, closed)
    return text.decode()


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def numbers(values: Sequence[int]) -> bytes:
    return b"".join(der(2, value.to_bytes(value.bit_length() // 8 + 1, "big")) for value in values)


def armor(label: str, content: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(content).decode()}-----END {label}-----\n"


def large_rsa(one: int, other: int) -> str:
    """A correct key of two Mersenne primes."""
    p, q = 2**one - 1, 2**other - 1
    d = pow(65537, -1, (p - 1) * (q - 1))
    values = (0, p * q, 65537, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    return armor("RSA PRIVATE KEY", der(0x30, numbers(values)))


def dsa(bits: int) -> str:
    """A key whose public part OpenSSL computes when it is read."""
    kind = bytes.fromhex("06072a8648ce380401")
    parameters = der(0x30, numbers((2**bits - 1, 2**bits + 1, 3)))
    whole = numbers((0,)) + der(0x30, kind + parameters) + der(4, numbers((2**bits - 1,)))
    return armor("PRIVATE KEY", der(0x30, whole))


@pytest.mark.parametrize(
    "text",
    [
        pem(RSA), pem(RSA, PrivateFormat.TraditionalOpenSSL), pem(ec.generate_private_key(ec.SECP521R1())),
        pem(ec.generate_private_key(ec.SECP256R1()), PrivateFormat.TraditionalOpenSSL),
        pem(ed25519.Ed25519PrivateKey.generate()), f"a comment\n{pem(RSA)}",
    ],
)  # fmt: skip
def test_usual_keys_are_read(text: str) -> None:
    key, block = read_private_key(text)
    assert block.strip() in text
    assert key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (large_rsa(2203, 3217), "an RSA key of more than 4096 bits"),
        (large_rsa(4253, 9941), "must be an RSA key of at most 4096 bits"),
        (dsa(9_000), "must be an RSA key of at most 4096 bits, or one of an elliptic curve"),
        (dsa(20_000), "must be an RSA key"),
        (pem(RSA, password=b"x"), "it is encrypted"),
        (pem(RSA, PrivateFormat.TraditionalOpenSSL, b"x"), "it is encrypted"),
        (armor("RSA PRIVATE KEY", b"x" * 100), "it is damaged"),
        (armor("DSA PRIVATE KEY", b"x" * 100), "must be an RSA key"),
        ("", "must be an RSA key"),
    ],
    ids=[
        "5420 bits",
        "14194 bits",
        "DSA",
        "large DSA",
        "encrypted",
        "old encryption",
        "damaged",
        "old DSA",
        "none",
    ],
)
def test_other_keys_are_refused_at_once(text: str, message: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ValueError, match=message):
        read_private_key(text)
    assert time.perf_counter() - began < 0.25
