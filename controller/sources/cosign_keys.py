"""The keys of cosign's signatures: which are believed, and what they sign. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from controller.sources.backend import Signer, fingerprint
from evaluator.host.signatures import PrivateKey, PublicKey, has_signed, read_public_key, scheme

if TYPE_CHECKING:
    from controller.runtime.secret_texts import SecretTexts


_SUFFIX: Final = ".pub"
_MOST_KEYS: Final = 100


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
        return has_signed(self.key, message, signature)


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
        return read_public_key(secret.text(name).encode())
    except ValueError as error:
        raise secret.invalid(f"{name!r} {error}") from None


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
    return base64.b64encode(key.sign(content, *scheme(key))).decode()
