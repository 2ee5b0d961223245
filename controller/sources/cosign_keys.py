"""The keys of cosign's signatures: which are believed, and what they sign. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from controller.sources.backend import Signer, fingerprint

if TYPE_CHECKING:
    from controller.runtime.secret_texts import SecretTexts


_SUFFIX: Final = ".pub"
_MOST_KEYS: Final = 100
_RSA_BITS: Final = 8_192
_EXPONENT_BITS: Final = 32
"""Most bits of an RSA key's modulus and exponent: one signature then takes a millisecond at most."""
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class CosignKey:
    """A public key that is believed: ECDSA, RSA or Ed25519."""

    name: str
    """The Secret's key that it is from, without `.pub`."""
    key: PublicKey

    @property
    def signer(self) -> Signer:
        """The signer as messages name it."""
        shape = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return Signer(f"cosign {fingerprint(shape)}", self.name)

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Whether `signature` is of `message` and by this key."""
        try:
            self.key.verify(signature, message, *_scheme(self.key))
        except InvalidSignature:
            return False
        return True


def _scheme(key: PublicKey | PrivateKey) -> tuple[Any, ...]:
    """Return how a key signs a content's SHA-256 hash; Ed25519 signs the content itself."""
    if isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey):
        return padding.PKCS1v15(), hashes.SHA256()
    return ()


def read_cosign_keys(secret: SecretTexts) -> tuple[CosignKey, ...]:
    """The keys `*.pub` of a Secret, in PEM. Raises Stalled (InvalidSecret)."""
    names = sorted(secret.content)
    if len(names) > _MOST_KEYS:
        raise secret.invalid(f"has {len(names)} keys; at most {_MOST_KEYS} public keys are read")
    for name in names:
        if not name.endswith(_SUFFIX):
            raise secret.invalid(f"{name!r}: must be called '*.pub' (a public key of cosign's, in PEM)")
    if not names:
        raise secret.invalid("has no public key; put one in as '*.pub'")
    return tuple(CosignKey(name.removesuffix(_SUFFIX), _read_key(secret, name)) for name in names)


def _read_key(secret: SecretTexts, name: str) -> PublicKey:
    try:
        key = load_pem_public_key(secret.text(name).encode())
    except (ValueError, UnsupportedAlgorithm):
        raise secret.invalid(f"{name!r} contains no public key in PEM format") from None
    if not isinstance(key, PublicKey):
        raise secret.invalid(f"{name!r} is neither an ECDSA, an RSA nor an Ed25519 key")
    if isinstance(key, rsa.RSAPublicKey):
        exponent = key.public_numbers().e
        if key.key_size > _RSA_BITS or exponent.bit_length() > _EXPONENT_BITS:
            message = f"{name!r} is an RSA key of more than {_RSA_BITS} bits, or with an unusual exponent"
            raise secret.invalid(message)
    return key


def read_private_key(pem: bytes) -> PrivateKey:
    """Raise ValueError, whose text says what is wrong and holds nothing of the key."""
    try:
        key = load_pem_private_key(pem, None)
    except TypeError:
        raise ValueError(
            "the key is encrypted; give one that is not, in a file that only you can read"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        message = "no private key in PEM (cosign's own are encrypted: make one with openssl genpkey)"
        raise ValueError(message) from None
    if not isinstance(key, PrivateKey):
        raise ValueError("the key is neither an ECDSA, an RSA nor an Ed25519 key")  # noqa: TRY004 - of its content
    return key


def signature_of(content: bytes, key: PrivateKey) -> str:
    """A signature of `content` in Base64: of its SHA-256 hash, but Ed25519 of itself."""
    return base64.b64encode(key.sign(content, *_scheme(key))).decode()
