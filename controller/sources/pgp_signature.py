"""Judges PGP signatures by Sequoia; keys that are revoked or expired do not count. For a helper."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pysequoia

from controller.sources.backend import NotBelievedError, Signer

if TYPE_CHECKING:
    from collections.abc import Iterable


def verify_pgp(message: bytes, armored: bytes, blocks: Iterable[str]) -> Signer:
    """Return whose key of `blocks` (in armor) signed `message`. Raises NotBelievedError."""
    try:
        signature = pysequoia.Sig.from_bytes(armored)
    except Exception:  # noqa: BLE001 - the library raises RuntimeError and ValueError for anything
        raise NotBelievedError("its PGP signature is damaged") from None
    issuer = signature.issuer_fingerprint or signature.issuer_key_id or "that is not named"
    named = f"PGP {str(issuer).upper()}"
    try:
        certificates = _merge(pysequoia.Cert.split_bytes(block.encode()) for block in blocks)
    except Exception:  # noqa: BLE001 - as above
        raise NotBelievedError("a trusted PGP key cannot be read: export it again") from None

    try:
        valid_signatures = pysequoia.verify(
            bytes=message, store=lambda _: certificates, signature=signature
        ).valid_sigs
    except Exception:  # noqa: BLE001 - as above
        valid_signatures = []
    by_fingerprint = {certificate.fingerprint: certificate for certificate in certificates}
    for valid in valid_signatures:
        if (owner := by_fingerprint.get(valid.certificate)) is not None:
            name = next((_plain(str(user)) for user in owner.user_ids), "")
            return Signer(f"PGP {valid.certificate.upper()}", name)
    raise NotBelievedError(_why(named, str(issuer), certificates))


def _merge(blocks: Iterable[list[pysequoia.Cert]]) -> list[pysequoia.Cert]:
    """Return one copy of each key: an older copy may not have its revocation."""
    merged: dict[str, pysequoia.Cert] = {}
    for certificate in itertools.chain.from_iterable(blocks):
        before = merged.get(certificate.fingerprint)
        merged[certificate.fingerprint] = certificate if before is None else before.merge(certificate)
    return list(merged.values())


def _why(named: str, issuer: str, certificates: list[pysequoia.Cert]) -> str:
    known = [certificate for certificate in certificates if certificate.fingerprint.endswith(issuer.lower())]
    if any(certificate.is_revoked for certificate in known):
        return f"it is signed with the key {named}, which is revoked"
    if known:
        return (
            f"its signature by {named} is not of its content, or was made while the key was not valid: "
            "something was changed, or the key had expired"
        )
    return f"it is signed with the key {named}, which is not among the trusted keys, or may not sign"


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())[:255]
