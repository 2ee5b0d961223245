"""The trusted public keys of a Secret, and whose of them made a signature.

`*.asc` are PGP keys, `*.sshpub` SSH public keys as in an authorized_keys file, both as Flux's Secrets have
them; `allowed_signers` is a file as `git config gpg.ssh.allowedSignersFile` names one (ssh-keygen(1)).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from controller.runtime.user_text.secret_texts import pem_blocks
from controller.sources.verification import NotBelievedError, Signer
from controller.sources.verification.ssh_signature import (
    MOST_KEYS,
    InvalidKeyError,
    SshKey,
    read_allowed,
    read_public,
    verify_ssh,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.runtime.user_text.secret_texts import SecretTexts

ALLOWED_SIGNERS: Final = "allowed_signers"
_LONGEST: Final = 256 * 1024
"""Bytes of all keys of a Secret together."""
_PGP: Final = ".asc"
_SSH: Final = ".sshpub"
_PGP_LABEL: Final = "PGP PUBLIC KEY BLOCK"
_SSH_ARMOR: Final = b"-----BEGIN SSH SIGNATURE-----"
_PGP_ARMOR: Final = (b"-----BEGIN PGP SIGNATURE-----", b"-----BEGIN PGP MESSAGE-----")


@dataclass(frozen=True, slots=True)
class Keys:
    """The trusted keys."""

    pgp: tuple[str, ...] = ()
    """Blocks in armor; one may hold several keys."""
    ssh: tuple[SshKey, ...] = ()
    names: tuple[str, ...] = ()
    """The Secret's keys that they are from, sorted."""


def read_keys(secret: SecretTexts) -> Keys:
    """The keys of a Secret, one at least. Raises Stalled (InvalidSecret)."""
    if sum(map(len, secret.content.values())) > _LONGEST:
        raise secret.invalid(f"has keys of more than {_LONGEST} bytes")
    pgp: list[str] = []
    ssh: list[SshKey] = []
    for name in sorted(secret.content):
        text = secret.text(name)
        if not name.endswith((_PGP, _SSH)) and name != ALLOWED_SIGNERS:
            raise secret.invalid(
                f"{name!r}: must be called '*.asc' (PGP), '*.sshpub' (SSH) or 'allowed_signers'"
            )
        try:
            if name.endswith(_PGP):
                pgp += _blocks(text)
            else:
                ssh += read_public(text) if name.endswith(_SSH) else read_allowed(text)
        except InvalidKeyError as error:
            raise secret.invalid(f"{name!r}: {error}") from None
    if len(pgp) + len(ssh) > MOST_KEYS:
        raise secret.invalid(f"has more than {MOST_KEYS} keys")
    if not pgp and not ssh:
        raise secret.invalid("has no public key; put one in as '*.asc', '*.sshpub' or 'allowed_signers'")
    return Keys(tuple(pgp), tuple(ssh), tuple(sorted(secret.content)))


def epoch(policy: Mapping[str, Any], content: Mapping[str, bytes]) -> str:
    """`sha256:…` of policy and keys: what was verified under another epoch is verified again."""
    keys = {name: hashlib.sha256(value).hexdigest() for name, value in content.items()}
    written = json.dumps([dict(policy), keys], sort_keys=True)
    return f"sha256:{hashlib.sha256(written.encode()).hexdigest()}"


def _blocks(text: str) -> list[str]:
    blocks = [block.text for block in pem_blocks(text) if block.label == _PGP_LABEL]
    if not blocks:
        raise InvalidKeyError("contains no PGP PUBLIC KEY BLOCK; write it with: gpg --armor --export KEY")
    return blocks


def verify(message: bytes, signature: bytes, keys: Keys, at: datetime) -> Signer:
    """Return who signed `message`, which says that it was written `at` a time. Raises NotBelievedError."""
    if not signature:
        raise NotBelievedError("it is not signed")
    if signature.lstrip().startswith(_SSH_ARMOR):
        return verify_ssh(message, signature, keys.ssh, at)
    if signature.lstrip().startswith(_PGP_ARMOR):
        # The library is loaded where such a signature is there.
        module = import_module("controller.sources.verification.pgp_signature")
        signer: Signer = module.verify_pgp(message, signature, keys.pgp)
        return signer
    raise NotBelievedError("its signature is neither of PGP nor of SSH (X.509 is not supported)")
