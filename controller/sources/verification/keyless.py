"""Finds who signed without a key, by the certificate and the log of a Sigstore instance. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from controller.api.parsing.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.sources.verification import Signer

MODULE: Final = "controller.sources.verification.sigstore_bundle"
"""What a helper loads at its start: Sigstore's library, which is slow to import."""


@dataclass(frozen=True, slots=True)
class SignerIdentity:
    """An accepted signer: expressions that match anywhere in a text, unless they have ^ and $."""

    issuer: str
    subject: str

    def covers(self, issuer: str, subject: str) -> bool:
        """Whether a certificate for `subject`, who logged in with `issuer`, is of this identity."""
        match = compile_pattern(self.issuer).search(issuer) and compile_pattern(self.subject).search(subject)
        return match is not None

    def __str__(self) -> str:
        return f"{self.issuer} {self.subject}"


def verify_keyless(bundle: bytes, digest: str, root: str, identities: Sequence[SignerIdentity]) -> Signer:
    """Return who of `identities` signed the manifest `digest`. Raises NotBelievedError, InvalidRootError."""
    signer: Signer = import_module(MODULE).verify(bundle, digest, root, identities)
    return signer


class InvalidRootError(ValueError):
    """A trusted_root.json that cannot be read, or lacks something; the text says what."""
