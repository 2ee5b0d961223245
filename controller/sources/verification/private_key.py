"""Reads the private key that a command signs with. Pure."""

from __future__ import annotations

import base64

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def read_private_key(pem: bytes) -> PrivateKey:
    """Raises ValueError, whose text says what is wrong and holds nothing of the key."""
    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        raise ValueError(
            "the key is encrypted; give one that is not, in a file that only you can read"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        message = "no private key in PEM (cosign's own are encrypted: make one with openssl genpkey)"
        raise ValueError(message) from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey, ed25519.Ed25519PrivateKey)):
        raise ValueError("the key is neither an ECDSA, an RSA nor an Ed25519 key")  # noqa: TRY004 - of its content
    return key


def signature_of(content: bytes, key: PrivateKey) -> str:
    """A signature of `content` in Base64: of its SHA-256 hash, but Ed25519 of itself."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        made = key.sign(content, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, rsa.RSAPrivateKey):
        made = key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    else:
        made = key.sign(content)
    return base64.b64encode(made).decode()
