"""One signature of any kind, by the trusted keys. Meant for a process of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from controller.sources.verification.signer import NotBelievedError, Signer

if TYPE_CHECKING:
    from datetime import datetime

    from controller.sources.verification.keys import Keys

SSH: Final = b"-----BEGIN SSH SIGNATURE-----"
PGP: Final = (b"-----BEGIN PGP SIGNATURE-----", b"-----BEGIN PGP MESSAGE-----")


def verify(message: bytes, signature: bytes, keys: Keys, at: datetime) -> Signer:
    """Who signed `message`. `at`: when the message says that it was written. Raises NotBelievedError."""
    if not signature:
        raise NotBelievedError("it is not signed")
    # The libraries are loaded for the kind that is there.
    if signature.lstrip().startswith(SSH):
        module = import_module("controller.sources.verification.ssh_signature")
        found: Signer = module.verify_ssh(message, signature, keys.ssh, at)
    elif signature.lstrip().startswith(PGP):
        module = import_module("controller.sources.verification.pgp_signature")
        found = module.verify_pgp(message, signature, keys.pgp)
    else:
        raise NotBelievedError("its signature is neither of PGP nor of SSH (X.509 is not supported)")
    return found
