"""Private keys that users put into Secrets: read and used within the bound of the event loop.

OpenSSL holds the interpreter while it tests the primes of an RSA key, or completes a DSA key, which takes
seconds for keys of a few kilobytes; and signatures are made on the event loop.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from controller.runtime.secret_texts import PemBlock, pem_blocks

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes


_LONGEST_KEY: Final = 8_192
"""Characters of a key."""
_RSA_BITS: Final = 4_096
_ALLOWED: Final = f"it must be an RSA key of at most {_RSA_BITS} bits, or one of an elliptic curve, in PEM"
_LENGTH: Final = rb"(?:[\x00-\x7f]|\x81.|\x82..)"
_KINDS: Final = (
    rb"\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01|\x07\x2a\x86\x48\xce\x3d\x02\x01|\x03\x2b\x65[\x70\x71]"
)
"""RSA, elliptic curves, Ed25519 and Ed448."""
_PKCS8: Final = re.compile(
    rb"\x30%b\x02\x01[\x00\x01]\x30%b\x06(?:%b)" % (_LENGTH, _LENGTH, _KINDS), re.DOTALL
)
"""How a key in PKCS #8 begins that may be read."""


def read_private_key(text: str) -> tuple[PrivateKeyTypes, str]:
    """Return the first private key of a text in PEM, and its block: an RSA key of at most 4,096 bits, or one
    of a named elliptic curve. Raises ValueError, whose text says what is wrong and holds nothing of the key.
    """
    block = next((block for block in pem_blocks(text) if "PRIVATE KEY" in block.label), None)
    if block is None or len(block.text) > _LONGEST_KEY or not _is_of_known_kind(block):
        raise ValueError(_ALLOWED)
    try:
        key = load_pem_private_key(block.text.encode(), None, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        raise ValueError("it is encrypted: store the key without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("it is damaged, or of a kind that is not supported") from None
    if isinstance(key, RSAPrivateKey):
        numbers = key.private_numbers()
        parts = (numbers.public_numbers.n, numbers.d, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1)
        if max(part.bit_length() for part in parts) > _RSA_BITS:
            raise ValueError(f"it is an RSA key of more than {_RSA_BITS} bits")
    return key, block.text


def _is_of_known_kind(block: PemBlock) -> bool:
    if block.label != "PRIVATE KEY":
        return block.label in {"RSA PRIVATE KEY", "EC PRIVATE KEY"} or block.encrypted
    try:
        return _PKCS8.match(base64.b64decode(block.content)) is not None
    except binascii.Error:
        return False
