"""What proves who wrote the content of a source: a detached signature beside it, by a key that is believed.

It proves nothing about time: an older content with its signature is believed again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.host.build_version import missing_package
from evaluator.sync.config import InvalidSourceError
from evaluator.sync.source import SUFFIX, UNVERIFIED, SourceFault

try:
    from evaluator.host.signatures import detached_signature, has_signed, read_public_keys
except ModuleNotFoundError as missing:
    raise InvalidSourceError(f"a source has a verifyKey, and {missing_package(missing)}") from None

if TYPE_CHECKING:
    from evaluator.host.signatures import PublicKey


class Verifier:
    """The public keys of one file, which is read again for every content: keys are replaced."""

    def __init__(self, key_file: str) -> None:
        """Raises InvalidSourceError for a file without a key."""
        self._path = Path(key_file)
        try:
            self._keys()
        except ValueError as error:
            raise InvalidSourceError(f"verifyKey: {error}") from None

    def require(self, name: str, content: bytes, signature: bytes) -> None:
        """Raise SourceFault unless one of the keys has signed the content; an empty signature is none. `name`
        is the content's. Blocks.
        """
        where = f"{name}: refused, and the last good flags stay"
        if not signature:
            raise SourceFault(UNVERIFIED, f"{where}: it has no signature beside it, in a file {SUFFIX}")
        try:
            keys, signed = self._keys(), detached_signature(signature.decode("utf-8", "replace"))
        except ValueError as error:
            raise SourceFault(UNVERIFIED, f"{where}: {error}") from None
        if not any(has_signed(key, content, signed) for key in keys):
            raise SourceFault(UNVERIFIED, f"{where}: its signature is by no key of {self._path}")

    def _keys(self) -> tuple[PublicKey, ...]:
        try:
            pem = self._path.read_bytes()
        except OSError as error:
            raise ValueError(f"{self._path} cannot be read: {error.strerror}") from None
        try:
            return read_public_keys(pem)
        except ValueError as error:
            raise ValueError(f"{self._path} {error}") from None
