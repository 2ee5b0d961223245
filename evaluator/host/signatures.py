"""Signatures by public keys: detached ones, as `cosign sign-blob` and `openssl dgst -sign` make them, and the
keys that controller and evaluator believe. Loads cryptography: imported by those who verify or sign.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

_RSA_BITS: Final = 8_192
_EXPONENT_BITS: Final = 32
"""Most bits of an RSA key's modulus and exponent: one signature then takes a millisecond at most."""
_BLOCK: Final = re.compile(rb"-----BEGIN [A-Z ]*PUBLIC KEY-----.*?-----END [A-Z ]*PUBLIC KEY-----", re.DOTALL)
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def scheme(key: PublicKey | PrivateKey) -> tuple[Any, ...]:
    """Return how a key signs a content's SHA-256 hash; Ed25519 signs the content itself."""
    if isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey):
        return padding.PKCS1v15(), hashes.SHA256()
    return ()


def has_signed(key: PublicKey, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is of `message` and by this key."""
    try:
        key.verify(signature, message, *scheme(key))
    except InvalidSignature:
        return False
    return True


def read_public_key(pem: bytes) -> PublicKey:
    """Raises ValueError, whose text follows the name of the file."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("contains no public key in PEM format") from None
    if not isinstance(key, PublicKey):
        raise ValueError("is neither an ECDSA, an RSA nor an Ed25519 key")  # noqa: TRY004 - of its content
    if isinstance(key, rsa.RSAPublicKey):
        exponent = key.public_numbers().e
        if key.key_size > _RSA_BITS or exponent.bit_length() > _EXPONENT_BITS:
            raise ValueError(f"is an RSA key of more than {_RSA_BITS} bits, or with an unusual exponent")
    return key


def read_public_keys(pem: bytes) -> tuple[PublicKey, ...]:
    """The keys in one file, at least one. Raises ValueError, whose text follows the name of the file."""
    return tuple(map(read_public_key, _BLOCK.findall(pem) or (pem,)))


def detached_signature(text: str) -> bytes:
    """The signature in Base64, or in the bundle that `cosign sign-blob` writes. Raises ValueError, which says
    what is wrong with it.
    """
    if text.lstrip().startswith("{"):
        text = _signature_in_bundle(text)
    try:
        # `base64` breaks lines.
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("its signature is damaged: it is not Base64") from None


def _signature_in_bundle(text: str) -> str:
    try:
        bundle = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its signature is damaged: it is not a JSON object") from None
    signed = bundle.get("messageSignature") if isinstance(bundle, dict) else None
    if not isinstance(signed, dict):
        raise ValueError("its signature is damaged: it has no 'messageSignature'")  # noqa: TRY004 - of its content
    return str(signed.get("signature"))
