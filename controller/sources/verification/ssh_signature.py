"""Signatures by SSH keys (openssh-portable, PROTOCOL.sshsig and PROTOCOL.u2f)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from controller.sources.verification import NotBelievedError, Signer
from controller.sources.verification.ssh_keys import Damaged, Reading, SshKey, fingerprint, string

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

_ARMOR: Final = re.compile(
    rb"\s*-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\s]+)-----END SSH SIGNATURE-----\s*"
)
_MAGIC: Final = b"SSHSIG"
_NAMESPACE: Final = b"git"
_HASHES: Final = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_RSA: Final = {b"rsa-sha2-256": hashes.SHA256(), b"rsa-sha2-512": hashes.SHA512()}
_CURVES: Final[dict[str, hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256(), "secp384r1": hashes.SHA384(), "secp521r1": hashes.SHA512(),
}  # fmt: skip
"""The hash that goes with each curve."""
_RSA_BITS: Final = 2_048
"""Fewest bits of an RSA key."""
_PRESENT: Final = 1
"""The flag of a security key that its user touched it."""


@dataclass(frozen=True, slots=True)
class SshSignature:
    """What stands in the armor."""

    blob: bytes
    """The public key that it claims to be made with."""
    namespace: bytes
    reserved: bytes
    algorithm: bytes
    """The algorithm of the message's hash."""
    signature: bytes


def read_signature(armored: bytes) -> SshSignature:
    """A signature in its armor. Raises Damaged."""
    found = _ARMOR.fullmatch(armored)
    if found is None:
        raise Damaged("it is not in the armor of an SSH signature")
    try:
        content = Reading(base64.b64decode(b"".join(found[1].split()), validate=True))
    except binascii.Error:
        raise Damaged("its armor does not hold Base64") from None
    if content.exactly(len(_MAGIC)) != _MAGIC or content.exactly(4) != b"\0\0\0\1":
        raise Damaged("it is not of version 1")
    read = SshSignature(content.text(), content.text(), content.text(), content.text(), content.text())
    content.end()
    return read


def verify_ssh(message: bytes, armored: bytes, keys: Iterable[SshKey], at: datetime) -> Signer:
    """Return whose key of `keys` signed `message` for Git at the time `at`. Raises NotBelievedError."""
    try:
        read = read_signature(armored)
    except Damaged as error:
        raise NotBelievedError(f"its SSH signature is damaged: {error}") from None
    named = f"SSH {fingerprint(read.blob)}"
    if read.namespace != _NAMESPACE:
        raise NotBelievedError(f"its signature by {named} was made for another purpose than Git")
    known = [key for key in keys if key.blob == read.blob]
    if not known:
        raise NotBelievedError(f"it is signed with the key {named}, which is not among the trusted keys")
    if read.algorithm not in _HASHES:
        raise NotBelievedError(f"its signature by {named} uses a hash other than sha256 and sha512")
    signed = _MAGIC + b"".join(map(string, (_NAMESPACE, read.reserved, read.algorithm)))
    signed += string(_HASHES[read.algorithm](message).digest())
    try:
        _check(known[0], signed, read.signature)
    except (ValueError, UnsupportedAlgorithm, NotImplementedError, InvalidSignature):
        message_ = f"its signature by {named} is not of its content: one of them was changed"
        raise NotBelievedError(message_) from None
    for key in known:
        if (key.after is None or at >= key.after) and (key.before is None or at < key.before):
            return Signer(named, key.name)
    raise NotBelievedError(f"it is signed with the key {named}, which was not valid at {at.isoformat()}")


def _check(key: SshKey, signed: bytes, signature: bytes) -> None:
    """Raise InvalidSignature, Damaged, or ValueError for a key that is none."""
    public = load_ssh_public_key(f"{key.type} {base64.b64encode(key.blob).decode()}".encode())
    content = Reading(signature)
    algorithm, made = content.text(), content.text()
    if key.type.startswith("sk-"):
        signed = _signed_by_device(key.blob, content.exactly(5), signed)
    content.end()
    if isinstance(public, rsa.RSAPublicKey):
        if algorithm not in _RSA or public.key_size < _RSA_BITS:
            raise InvalidSignature
        public.verify(made, signed, padding.PKCS1v15(), _RSA[algorithm])
    elif algorithm != key.type.encode():
        raise InvalidSignature
    elif isinstance(public, ec.EllipticCurvePublicKey):
        numbers = Reading(made)
        pair = encode_dss_signature(numbers.number(), numbers.number())
        numbers.end()
        public.verify(pair, signed, ec.ECDSA(_CURVES[public.curve.name]))
    elif isinstance(public, ed25519.Ed25519PublicKey):
        public.verify(made, signed)
    else:
        raise InvalidSignature


def _signed_by_device(blob: bytes, state: bytes, signed: bytes) -> bytes:
    """What a security key signs: hashes of its application's name and of the message, and its own state."""
    if not state[0] & _PRESENT:
        raise InvalidSignature
    application, public = b"", Reading(blob)
    while public.left:
        # It is the last string of the key.
        application = public.text()
    return hashlib.sha256(application).digest() + state + hashlib.sha256(signed).digest()
