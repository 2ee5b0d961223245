"""Verifies signatures and finds the signer, independent of the kind of source."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass


class NotBelievedError(Exception):
    """A signature that is missing, damaged or not trusted; the text says why, and names no secret."""


class NotJudgedError(NotBelievedError):
    """A signature that could not be judged within its limits; the text says why. It may be good."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The owner of the key of a verified signature."""

    key: str
    """Kind and fingerprint: `SSH SHA256:…`, `PGP 0123…`."""
    name: str = ""
    """The key's owner, as the trusted keys call it; empty if they do not."""

    def __str__(self) -> str:
        return f"{self.name} ({self.key})" if self.name else self.key


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` of a public key's bytes, as ssh-keygen prints it."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"
