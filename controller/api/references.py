"""What is followed of a repository: names and commits of Git, and ranges of versions. Pure."""

from __future__ import annotations

import re
from typing import Final

import semantic_version

from controller.api.parsing import InvalidTextError

HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
TAG_MODES: Final = ("Tag", "TagAndHEAD")
"""Modes of verification that need a tag."""


REASON: Final = "InvalidReference"
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
SHORT_COMMIT: Final = re.compile(r"[0-9a-f]{4,39}")
_PREFIXES: Final = {"branch": HEADS, "tag": TAGS}
# What `git check-ref-format` refuses, and a leading dash, which a program could take for an option.
_BAD_NAME: Final = re.compile(
    r"""^-|^/|/$|//|\.\.|@\{|\.$|(^|/)\.|\.lock(/|$)|^@$|[\x00-\x20\x7f~^:?*\[\\]"""
)


def require_name(kind: str, name: str) -> None:
    """Raise InvalidTextError for what is no name in Git; `kind`: branch, tag, or name for a full name such
    as `refs/heads/x`.
    """
    if not name or _BAD_NAME.search(name):
        noun = "reference" if kind == "name" else kind
        raise InvalidTextError(f"{name!r} is not a valid {noun} name in Git", REASON)
    if kind == "name" and not name.startswith("refs/"):
        raise InvalidTextError(f"{name!r} is not a full reference name; it must start with refs/", REASON)


def short_name(kind: str, text: str) -> str:
    """Return the name of a branch or a tag, which may be written as `refs/heads/…` or `refs/tags/…`; `kind`:
    branch or tag. Raises InvalidTextError.
    """
    name = text.removeprefix(_PREFIXES[kind])
    if name.startswith("refs/"):
        fields = (
            f"{other}: {name.removeprefix(start)}"
            for other, start in _PREFIXES.items()
            if name.startswith(start)
        )
        right = next(fields, f"name: {name}")
        raise InvalidTextError(f"{text!r} is not the name of a {kind}; write it as {right}", REASON)
    require_name(kind, name)
    return name


def require_commit(text: str) -> None:
    """Raise InvalidTextError for what is no commit's id of 40 hexadecimal digits."""
    if COMMIT.fullmatch(text):
        return
    if COMMIT.fullmatch(text.lower()):
        why = "write its letters in lower case"
    elif re.fullmatch(r"[0-9a-fA-F]{64}", text):
        why = "it is one of SHA-256, and only SHA-1 repositories are supported"
    elif SHORT_COMMIT.fullmatch(text.lower()):
        why = f"write all 40 hexadecimal digits, which this prints: git rev-parse {text}"
    else:
        why = "write all 40 hexadecimal digits"
    raise InvalidTextError(f"{text!r} is not a commit id; {why}", REASON)


def parse_range(text: str) -> semantic_version.NpmSpec:
    """A range as in npm or Flux (commas, `v1`, a space after `>=`). Raises InvalidTextError."""
    plain = re.sub(r"([<>=~^])\s+(?=[\dv])", r"\1", text.replace(",", " "))
    plain = re.sub(r"(?<![\w.+-])v(?=\d)", "", plain)
    # The library finds nothing between two prereleases; `<1.1.0-0` and `<1.1.0` leave out the same versions.
    plain = re.sub(r"<(\d+\.\d+\.\d+)-0(?=\s|$)", r"<\1", " ".join(plain.split()))
    try:
        return semantic_version.NpmSpec(plain)
    except ValueError:
        message = f"{text!r} is not a version range; write for example '>=1.0 <2', '1.x' or '^2.1'"
        raise InvalidTextError(message, REASON) from None


def is_older(text: str, other: str) -> bool:
    """Return whether `text` is a lower version or number than `other`; False if either is none."""
    if all(number.isascii() and number.isdigit() for number in (text, other)):
        return (len(text.lstrip("0")), text.lstrip("0")) < (len(other.lstrip("0")), other.lstrip("0"))
    this, that = read_version(text), read_version(other)
    return this is not None and that is not None and bool(this.precedence_key < that.precedence_key)


def read_version(text: str) -> semantic_version.Version | None:
    """Return a version such as `1.2.3` or `v1.2.3`; None for any other text."""
    try:
        return semantic_version.Version(text.removeprefix("v"))
    except ValueError:
        return None
