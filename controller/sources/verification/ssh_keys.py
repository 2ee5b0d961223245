"""SSH public keys, alone or with their owner and the time in which they count (ssh-keygen(1), ALLOWED
SIGNERS), and the strings that SSH's formats consist of (RFC 4251, section 5). Pure.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

TYPES: Final = (
    "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
"""Kinds of keys whose signatures can be judged; `sk-` are those of security keys."""
_MOST: Final = 1_000
_WORD: Final = re.compile(r'(?:[^\s"]|"[^"]*")+')
_OPTION: Final = re.compile(r'([a-z-]+)(?:="([^"]*)")?(?:,|$)')
_TIMES: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_NAMESPACE: Final = "git"


class InvalidKeyError(ValueError):
    """A public key that cannot be read; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A key that is believed."""

    type: str
    blob: bytes
    """The key as in a signature: the type's name again, and its numbers."""
    name: str = ""
    """The owner of the key; empty where the file does not say."""
    after: datetime | None = None
    """Signatures of commits before this do not count."""
    before: datetime | None = None
    """Signatures of commits from here on do not count."""

    @property
    def fingerprint(self) -> str:
        """`SHA256:…`, as ssh-keygen prints it."""
        return fingerprint(self.blob)


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` of a key, as ssh-keygen prints it."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


def read_public(text: str) -> list[SshKey]:
    """The keys of an authorized_keys file: `TYPE BASE64 [COMMENT]` a line. Raises InvalidKeyError."""
    return [_key(words, line, " ".join(words[2:])) for line, words in _lines(text)]


def read_allowed(text: str) -> list[SshKey]:
    """The keys of an allowed_signers file that may sign for Git. Raises InvalidKeyError."""
    found = []
    for line, words in _lines(text):
        named, options, rest = words[0], "", words[1:]
        if rest and rest[0] not in TYPES:
            options, rest = rest[0], rest[1:]
        key = _with_options(_key(rest, line, named.strip('"')), options, line)
        if key is not None:
            found.append(key)
    return found


def _lines(text: str) -> list[tuple[int, list[str]]]:
    """(number, words) of each line that is neither empty nor a comment."""
    found = [
        (number, _WORD.findall(line))
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if len(found) > _MOST:
        raise InvalidKeyError(f"has more than {_MOST} keys")
    return [(number, words) for number, words in found if words]


def _key(words: list[str], line: int, name: str) -> SshKey:
    if len(words) < 2 or words[0] not in TYPES:
        kinds = ", ".join(TYPES)
        raise InvalidKeyError(f"line {line} is no public key; its type must be one of {kinds}")
    try:
        blob = base64.b64decode(words[1], validate=True)
        named = Reading(blob).text()
    except ValueError:
        raise InvalidKeyError(f"line {line}: the key is damaged") from None
    if named != words[0].encode():
        raise InvalidKeyError(f"line {line}: the key is not of the type that is written before it")
    return SshKey(words[0], blob, "".join(letter for letter in name if letter.isprintable())[:255])


def _with_options(key: SshKey, options: str, line: int) -> SshKey | None:
    """The key as its options restrict it; None: it may not sign for Git."""
    after = before = None
    place = 0
    while place < len(options):
        found = _OPTION.match(options, place)
        if found is None:
            raise InvalidKeyError(f"line {line}: its options cannot be read")
        place = found.end()
        option, value = found[1], found[2]
        if option == "namespaces" and value is not None:
            if set(value) & set("![\\"):
                raise InvalidKeyError(f"line {line}: namespaces {value!r}: only names, * and ? are supported")
            if not any(fnmatchcase(_NAMESPACE, each) for each in value.split(",")):
                return None
        elif option == "valid-after" and value is not None:
            after = _time(value, line)
        elif option == "valid-before" and value is not None:
            before = _time(value, line)
        else:
            raise InvalidKeyError(f"line {line}: the option {option!r} is not supported")
    return SshKey(key.type, key.blob, key.name, after, before)


def _time(value: str, line: int) -> datetime:
    """Read a time in UTC, with a Z at its end or without."""
    digits = value.removesuffix("Z")
    try:
        return datetime.strptime(digits, _TIMES[len(digits)]).replace(tzinfo=UTC)
    except (KeyError, ValueError):
        raise InvalidKeyError(f"line {line}: {value!r} is no time; write YYYYMMDD or YYYYMMDDHHMM") from None


class Damaged(ValueError):
    """Bytes that are not what they should be."""


class Reading:
    """Reads one string after the other."""

    def __init__(self, content: bytes) -> None:
        self.left = content

    def exactly(self, size: int) -> bytes:
        """Exactly `size` bytes. Raises Damaged."""
        if len(self.left) < size:
            raise Damaged("it ends too early")
        found, self.left = self.left[:size], self.left[size:]
        return found

    def text(self) -> bytes:
        """A string: its length in four bytes, then its bytes. Raises Damaged."""
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def number(self) -> int:
        """A positive integer (`mpint`). Raises Damaged."""
        found = self.text()
        if found[:1] >= b"\x80" or len(found) > 2_048:
            raise Damaged("a number is negative or too large")
        return int.from_bytes(found, "big")

    def end(self) -> None:
        """Raise Damaged where something is left."""
        if self.left:
            raise Damaged("something follows its end")


def string(content: bytes) -> bytes:
    """`content` as such a string."""
    return len(content).to_bytes(4, "big") + content
