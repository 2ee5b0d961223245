"""The keys that open the files of sops: age identities, and secret keys of OpenPGP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.flagsets.sops import Decryption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class KeysError(ValueError):
    """A key cannot be read; the text does not repeat it."""


def decryption_with(age: Iterable[str], pgp: Iterable[bytes] = ()) -> Decryption:
    """Decrypts with the age identities in `age`, one a line, and the keys in `pgp`, which no passphrase
    protects. Raises KeysError where one cannot be read, or there is none.
    """
    openers = {"age": [*_age(age)], "pgp": [*_pgp(pgp)]}
    if not any(openers.values()):
        raise KeysError("there is no key")

    def opened(kind: str, message: bytes) -> bytes | None:
        found = (opener(message) for opener in openers[kind])
        return next((each for each in found if each is not None), None)

    return Decryption(opened)


def _age(texts: Iterable[str]) -> Iterable[Callable[[bytes], bytes | None]]:
    # 2 MB, which only those pay who decrypt; as below.
    import pyrage  # noqa: PLC0415

    lines = [line.strip() for text in texts for line in text.splitlines()]
    try:
        identities = [
            pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")
        ]
    except pyrage.IdentityError:
        raise KeysError("an age key cannot be read; it begins with AGE-SECRET-KEY-1") from None

    def opened(message: bytes) -> bytes | None:
        try:
            return bytes(pyrage.decrypt(message, identities))
        except pyrage.DecryptError:
            return None

    return (opened,) if identities else ()


def _pgp(keys: Iterable[bytes]) -> Iterable[Callable[[bytes], bytes | None]]:
    for key in keys:
        import pysequoia  # noqa: PLC0415

        try:
            decryptor = pysequoia.Tsk.from_bytes(key).decryptor()
        except RuntimeError:
            message = "a PGP key cannot be read; write a secret key, which no passphrase protects"
            raise KeysError(message) from None

        def opened(message: bytes, decryptor: pysequoia.PyDecryptor = decryptor) -> bytes | None:
            try:
                return pysequoia.decrypt(message, decryptor=decryptor).bytes
            except RuntimeError:
                return None

        yield opened
