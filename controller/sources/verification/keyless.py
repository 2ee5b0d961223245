"""Who signed without a key, as an instance of Sigstore vouches for it by certificate and log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

import re2

from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.patterns import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controller.api.flagsource import OidcIdentity
    from controller.sources.verification import Signer

MODULE: Final = "controller.sources.verification.sigstore_bundle"
"""What a helper loads at its start: Sigstore's library, which is slow to import."""
_FIELD: Final = "spec.verify.matchOIDCIdentity"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who may sign: expressions that match anywhere in a text, unless they say ^ and $, as with Flux."""

    issuer: str
    subject: str

    def covers(self, issuer: str, subject: str) -> bool:
        """Whether a certificate for `subject`, who logged in with `issuer`, is of this identity."""
        found = compiled(self.issuer).search(issuer) and compiled(self.subject).search(subject)
        return found is not None

    def __str__(self) -> str:
        return f"{self.issuer} {self.subject}"


def identities_of(given: Iterable[OidcIdentity]) -> tuple[Identity, ...]:
    """Raises Stalled (InvalidIdentity) for what is no expression, or matches everybody."""
    identities = tuple(Identity(each.issuer, each.subject) for each in given)
    for number, each in enumerate(identities):
        for name, pattern in (("issuer", each.issuer), ("subject", each.subject)):
            where = f"{_FIELD}[{number}].{name}: {pattern!r}"
            try:
                found = compiled(pattern).search("")
            except re2.error:
                message = f"{where} is not a regular expression of RE2, or too large a one"
                raise Stalled("InvalidIdentity", message) from None
            if found is not None:
                message = f"{where} matches everybody; write the {name} that must have signed"
                raise Stalled("InvalidIdentity", message)
    return identities


def verify_keyless(bundle: bytes, digest: str, root: str, identities: Sequence[Identity]) -> Signer:
    """Who of `identities` signed the manifest `digest`. Raises NotBelievedError, InvalidRootError."""
    found: Signer = import_module(MODULE).verify(bundle, digest, root, identities)
    return found


class InvalidRootError(ValueError):
    """A trusted_root.json that cannot be read, or lacks something; the text says what."""
