"""Validates the header fields of requests and trailers (RFC 9113 section 8).

Each field is validated once, when it is decoded: fields in the compression tables are validated already.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from evaluator.http.messages import Headers

NONE, BAD, METHOD, SCHEME, PATH, AUTHORITY, LENGTH, CONTENT_TYPE, TIMEOUT, ENCODING = range(10)
"""Marks of a field: nothing special, not allowed in a request, or its index in `Block.values`."""

MARKS: Final = ENCODING + 1
LAST_PSEUDO: Final = AUTHORITY
UNDECLARED: Final = -1
"""The content length of a request without content-length."""

_SPECIAL: Final = {
    ":method": METHOD,
    ":scheme": SCHEME,
    ":path": PATH,
    ":authority": AUTHORITY,
    "content-length": LENGTH,
    "content-type": CONTENT_TYPE,
    "grpc-timeout": TIMEOUT,
    "grpc-encoding": ENCODING,
}
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_BAD_VALUE: Final = re.compile(r"[\x00\r\n]|\A[ \t]|[ \t]\Z").search
_LENGTH: Final = re.compile(r"[0-9]{1,18}").fullmatch
_OF_A_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)
_LONGEST_NAME: Final = 64


class Block(NamedTuple):
    """A header block, decoded and validated."""

    fields: Headers
    values: list[str | None]
    """Values by mark: the fields that decide how a request is answered."""
    sound: bool
    """Whether no field is BAD, no special one has two values, and pseudo-header fields come first."""
    size: int
    """About how many bytes it takes in memory."""


def mark_of_name(name: str) -> int:
    """Return the mark of a field with a valid value; BAD for a name that no request may have."""
    mark = _SPECIAL.get(name)
    if mark is not None:
        return mark
    return NONE if _NAME(name) and name not in _OF_A_CONNECTION else BAD


_known_name = lru_cache(maxsize=256)(mark_of_name)


def mark_of(name: str, value: str) -> int:
    """Return the mark of a field."""
    mark = _known_name(name) if len(name) <= _LONGEST_NAME else mark_of_name(name)
    # The first test is quick, and true of nearly all values.
    if not (value.isprintable() and value.strip() == value) and _BAD_VALUE(value):
        return BAD
    if (mark == LENGTH and not _LENGTH(value)) or (name == "te" and value != "trailers"):
        return BAD
    return mark


def content_length(block: Block) -> int | None:
    """Return a request's content length, or UNDECLARED; None if the block is no valid request."""
    values = block.values
    path = values[PATH]
    if not (block.sound and values[METHOD] and values[SCHEME] is not None and path):
        return None
    if path[0] != "/" and path != "*":
        return None
    length = values[LENGTH]
    return UNDECLARED if length is None else int(length)


def may_follow_a_body(block: Block) -> bool:
    """Return whether these are valid trailers (section 8.1)."""
    return block.sound and not any(block.values[METHOD : LAST_PSEUDO + 1])
