"""Commits and tags as what was signed and the signature of it (gitformat-signature(5)). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SIGNATURE: Final = b"gpgsig"
_OTHER: Final = b"gpgsig-sha256"
"""The signature of the same commit in a repository of SHA-256; no part of what this one signs."""
_BEGINS: Final = re.compile(
    rb"^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SIGNED MESSAGE|SSH SIGNATURE)-----", re.MULTILINE
)
_TIME: Final = re.compile(rb"> (\d{1,12}) [+-]\d{4}$")


class UnreadableObjectError(ValueError):
    """An object that Git would not make."""


@dataclass(frozen=True, slots=True)
class SignedObject:
    """A commit or a tag."""

    content: bytes
    signature: bytes
    """In its armor; empty where there is none."""
    written: datetime
    """By its committer's or tagger's clock."""


@dataclass(frozen=True, slots=True)
class SignedTag(SignedObject):
    """An annotated tag."""

    target: str
    """The id of what it marks."""
    kind: str
    """Type of the marked object: `commit`, `tag` and so on."""
    name: str
    """The tag's name, as the object has it."""


def read_commit(raw: bytes) -> SignedObject:
    """A commit's object. Raises UnreadableObjectError."""
    head, blank, message = raw.partition(b"\n\n")
    kept: list[bytes] = []
    signature: list[bytes] = []
    count = 0
    for name, lines in _headers(head):
        if name == _SIGNATURE:
            count += 1
            signature = [lines[0].removeprefix(_SIGNATURE + b" "), *(line[1:] for line in lines[1:])]
        elif name != _OTHER:
            kept += lines
    if count > 1:
        raise UnreadableObjectError("it has more than one signature")
    content = b"\n".join(kept) + blank + message
    armored = b"\n".join(signature) + b"\n" if signature else b""
    return SignedObject(content, armored, _time_of(kept, b"committer "))


def read_tag(raw: bytes) -> SignedTag:
    """An annotated tag's object. Raises UnreadableObjectError."""
    head, _, message = raw.partition(b"\n\n")
    headers = {name: lines[0].partition(b" ")[2] for name, lines in reversed(_headers(head))}
    try:
        target, kind, name = (headers[header].decode() for header in (b"object", b"type", b"tag"))
    except (KeyError, UnicodeDecodeError):
        raise UnreadableObjectError("it does not say what it marks") from None
    # As Git, which takes the last line that a signature may begin with.
    begins = [match.start() for match in _BEGINS.finditer(message)]
    start = len(raw) - len(message) + begins[-1] if begins else len(raw)
    return SignedTag(raw[:start], raw[start:], _time_of(head.split(b"\n"), b"tagger "), target, kind, name)


def _headers(head: bytes) -> list[tuple[bytes, list[bytes]]]:
    """(name, its line and those that continue it) in order."""
    headers: list[tuple[bytes, list[bytes]]] = []
    for line in head.split(b"\n"):
        if not line.startswith(b" "):
            headers.append((line.partition(b" ")[0], [line]))
        elif headers:
            headers[-1][1].append(line)
        else:
            raise UnreadableObjectError("it begins with a blank")
    return headers


def _time_of(lines: list[bytes], name: bytes) -> datetime:
    line = next((candidate for candidate in lines if candidate.startswith(name)), b"")
    time = _TIME.search(line)
    try:
        return datetime.fromtimestamp(int(time[1]) if time else 0, UTC)
    except (ValueError, OverflowError, OSError):
        raise UnreadableObjectError("its time cannot be read") from None
