"""The keys that open the files of sops: age identities, and secret keys of OpenPGP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.flagsets.preparing.pgp import open_message
from controller.flagsets.preparing.sops import KEY_BYTES, Decryption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Opener = Callable[[Sequence[bytes]], bytes | None]


_MOST_KEYS: Final = 100
"""Each key is tried on each copy of a file's key."""


class KeysError(ValueError):
    """A key cannot be read; the text does not repeat it."""


def decryption_with(age: Iterable[str], pgp: Iterable[bytes] = ()) -> Decryption:
    """Decrypts with age identities, one a line, and PGP keys without a passphrase. Raises KeysError."""
    keys = _Keys(tuple(age), tuple(pgp))
    _require_readable(keys.pgp)
    if _age(keys.age) is None and not keys.pgp:
        raise KeysError("there is no key")
    return Decryption(keys)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys as texts, which another process can be sent. Implements `Open`."""

    age: tuple[str, ...]
    pgp: tuple[bytes, ...]

    def __call__(self, kind: str, messages: Sequence[bytes]) -> bytes | None:
        """Return the content that the first fitting key decrypts, or None."""
        if kind == "pgp":
            return open_message(self.pgp, messages, KEY_BYTES) if self.pgp else None
        opener = _age(self.age)
        return None if opener is None else opener(messages)


def _age(texts: Iterable[str]) -> Opener | None:
    # 2 MB, which only those pay who decrypt; as below.
    import pyrage  # noqa: PLC0415

    lines = [line.strip() for text in texts for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if len(keys) > _MOST_KEYS:
        raise KeysError(f"there are more than {_MOST_KEYS} age keys; leave out those of former files")
    try:
        identities = [pyrage.x25519.Identity.from_str(key) for key in keys]
    except pyrage.IdentityError:
        raise KeysError("an age key cannot be read; it begins with AGE-SECRET-KEY-1") from None

    def open_messages(messages: Sequence[bytes]) -> bytes | None:
        for message in messages:
            try:
                content = bytes(pyrage.decrypt(message, identities))
            except pyrage.DecryptError:
                continue
            if len(content) == KEY_BYTES:
                return content
        return None

    return open_messages if identities else None


def _require_readable(keys: Sequence[bytes]) -> None:
    if len(keys) > _MOST_KEYS:
        raise KeysError(f"there are more than {_MOST_KEYS} PGP keys; leave out those of former files")
    for key in keys:
        import pysequoia  # noqa: PLC0415

        try:
            pysequoia.Tsk.from_bytes(key).decryptor()
        except RuntimeError:
            message = "a PGP key cannot be read; write a secret key, which no passphrase protects"
            raise KeysError(message) from None
