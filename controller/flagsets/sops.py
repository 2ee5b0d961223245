"""Decrypts what sops encrypted (https://getsops.io) in its place, by keys of a Secret."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.flagsets.pgp import open_message
from controller.flagsets.preparation import Allowance, Prepared
from evaluator.flags.problems import Document, Finding, Severity
from evaluator.flags.text import json_path, read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from evaluator.flags.model import Json, Path

    Opener = Callable[[Sequence[bytes]], bytes | None]


Open: TypeAlias = "Callable[[str, Sequence[bytes]], bytes | None]"
"""(`age` or `pgp`, messages) -> the first content of a key's length that a key of ours opens, or None."""
KEY_BYTES: Final = 32
METADATA: Final = "sops"
FAILED: Final = "decryption-failed"
_VALUE: Final = re.compile(
    r"ENC\[AES256_GCM,data:([^,]*),iv:([^,]+),tag:([^,]+),type:(str|int|float|bool|bytes|comment)\]"
)
_KINDS: Final = {"age": "recipient", "pgp": "fp"}
"""The lists that contain the copies of a file's key, and the field of an entry that names its recipient."""
_MOST_KEYS: Final = 100
"""Most encrypted copies of a file's key that are read."""
_LONGEST_COPY: Final = 8_192
_MAC_ONLY_ENCRYPTED: Final = bytes.fromhex("8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69")
"""What sops begins the hash with where the MAC covers encrypted values alone."""


class UndecryptableError(Exception):
    """A document cannot be decrypted; the text holds no value of it."""


@dataclass(frozen=True, slots=True)
class Decryption:
    """Decrypts documents. Implements `Step`."""

    open: Open | None = None
    """Decrypts a file's key; None: there are no keys."""

    def __call__(self, document: Document, allowance: Allowance) -> Prepared:
        """Decrypt a document that is encrypted; any other stays as it is."""
        del allowance
        top = document.value
        metadata = top.get(METADATA) if isinstance(top, dict) else None
        if not isinstance(top, dict) or not isinstance(metadata, dict) or "mac" not in metadata:
            return Prepared(document)
        try:
            opened = _Opened(_data_key(metadata, self.open), metadata)
            value = opened.value({key: member for key, member in top.items() if key != METADATA}, ())
            opened.check()
        except UndecryptableError as error:
            finding = Finding((METADATA,), Severity.ERROR, FAILED, str(error), at_key=True)
            value = {key: member for key, member in top.items() if key != METADATA}
            return Prepared(replace(document, value=value, findings=(*document.findings, finding)))
        return Prepared(replace(document, value=value), tuple(opened.secrets))


def _data_key(metadata: dict[str, Any], opened: Open | None) -> bytes:
    if opened is None:
        raise UndecryptableError("the file is encrypted by sops; give its key: spec.decryption, or --age-key")
    groups = metadata.get("key_groups")
    if isinstance(groups, list) and len(groups) > 1:
        raise UndecryptableError("the file's key is shared among groups of keys, which is not supported")
    holder = groups[0] if isinstance(groups, list) and groups else metadata
    recipients = []
    for kind, name in _KINDS.items():
        copies = holder.get(kind) if isinstance(holder, dict) else None
        entries = [
            entry
            for entry in (copies[:_MOST_KEYS] if isinstance(copies, list) else ())
            if isinstance(entry, dict)
        ]
        texts = [text for entry in entries if isinstance(text := entry.get("enc"), str)]
        messages = [text.encode(errors="replace") for text in texts if len(text) <= _LONGEST_COPY]
        key = opened(kind, messages) if messages else None
        if key is not None and len(key) == KEY_BYTES:
            return key
        recipients += [str(entry.get(name))[:80] for entry in entries]
    names = ", ".join(recipients[:3]) or "no age or PGP key at all"
    raise UndecryptableError(f"none of the given keys decrypts the file, which is encrypted for {names}")


class _Opened:
    """A document's values, decrypted with its key, and their hash."""

    def __init__(self, key: bytes, metadata: dict[str, Any]) -> None:
        # Only those pay for it who decrypt.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._cipher = AESGCM(key)
        self._metadata = metadata
        self._encrypted_only = metadata.get("mac_only_encrypted") is True
        self._hash = hashlib.sha512(_MAC_ONLY_ENCRYPTED if self._encrypted_only else b"")
        self.secrets: list[Path] = []

    def value(self, value: Json, path: Path) -> Json:
        """The value with all that is encrypted in it decrypted."""
        if isinstance(value, dict):
            return {key: self.value(member, (*path, key)) for key, member in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        match = _VALUE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            if not self._encrypted_only:
                self._hash.update(_plain(value))
            return value
        # A list's items are known by the list's own path.
        names = ":".join(step for step in path if isinstance(step, str))
        content = self._decrypt(match, f"{names}:", json_path(path))
        self._hash.update(content)
        self.secrets.append(path)
        return _typed_value(content, match[4], json_path(path))

    def check(self) -> None:
        """Raise UndecryptableError where the hash is not the one that was encrypted with the file."""
        match = _VALUE.fullmatch(str(self._metadata.get("mac")))
        if match is None:
            raise UndecryptableError("the file's MAC cannot be read")
        mac = self._decrypt(match, str(self._metadata.get("lastmodified")), "the file's MAC")
        if not hmac.compare_digest(mac.upper(), self._hash.hexdigest().upper().encode()):
            raise UndecryptableError(
                "the file was changed without sops: its MAC is of another content; edit it by sops"
            )

    def _decrypt(self, match: re.Match[str], about: str, where: str) -> bytes:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415

        try:
            data, nonce, tag = (base64.b64decode(match[number], validate=True) for number in (1, 2, 3))
            return self._cipher.decrypt(nonce, data + tag, about.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise UndecryptableError(
                f"{where} cannot be decrypted: it was changed or moved; edit the file by sops"
            ) from None


def _plain(value: Json) -> bytes:
    """A value that is not encrypted, as sops hashes it."""
    if value is None:
        return b""
    if isinstance(value, bool):
        return b"True" if value else b"False"
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f").encode()
    return str(value).encode()


def _typed_value(content: bytes, type_: str, where: str) -> Json:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UndecryptableError(f"{where} is not UTF-8 text") from None
    if type_ == "bool":
        return text.lower() == "true"
    if type_ not in ("int", "float"):
        return text
    try:
        number = read_number(text)
    except ValueError:
        number = None
    if number is None:
        raise UndecryptableError(f"{where} is not a number")
    return number


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
