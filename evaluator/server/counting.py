"""How many values a request holds, before anything is made of them: each costs a microsecond to read, and a body has room for many.

The counts are quick bounds from above; only where one is over the limit is anything looked at more closely.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

LARGE: Final = 16_384
"""Bytes of a request above which it is read beside others and its values are counted; smaller ones have no room for too many."""
MOST_VALUES: Final = 10_000
"""Members of objects and elements of lists in one request, wherever they stand."""

_ROW: Final = 256
"""Values, or fields, that are read in a row."""
_MOST_FIELDS: Final = 8 * MOST_VALUES
"""A value takes four: its entry, its name, itself and its content."""
_DEEPEST: Final = 128
"""What nests deeper than 100, protobuf's own reader refuses."""
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5
_VARINT_BITS: Final = 70
_GROUPS: Final = frozenset({3, 4})

_Fields: TypeAlias = "dict[int, _Fields]"
"""What a message's fields hold that are messages themselves, by number."""

STRUCT: _Fields = {}
_ENTRY: _Fields = {}
_VALUE: _Fields = {}
_LIST: _Fields = {}
STRUCT[1] = _ENTRY
_ENTRY[2] = _VALUE
_VALUE.update({5: STRUCT, 6: _LIST})
_LIST[1] = _VALUE


class MalformedError(ValueError):
    """The bytes are no protobuf message."""


def turns() -> Iterator[bool]:
    """True each time that others should have their turn."""
    return cycle((False,) * (_ROW - 1) + (True,))


def too_many_in_json(text: bytes) -> bool:
    """Whether the JSON `text` holds more than MOST_VALUES; of what is no JSON, anything."""
    if len(text) <= LARGE or _separators(text) <= MOST_VALUES:
        return False
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # A value is at most two texts, it and its name: more quotes than that need not be told apart.
    pieces = bare.split(b'"', 4 * MOST_VALUES)
    if len(pieces) > 4 * MOST_VALUES:
        return True
    outside = b"0".join(pieces[::2])
    return _separators(outside) - outside.count(b"[]") - outside.count(b"{}") > MOST_VALUES


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def too_many_in_protobuf(message: bytes, fields: _Fields) -> Generator[None, None, bool]:
    """Whether `message` holds more than MOST_VALUES in what `fields` describes, or more fields than they can need.

    Yields now and then. Raises MalformedError.
    """
    # The tag of an entry and of an element is byte 10, or 138 where it is written longer than need be.
    if message.count(b"\x0a") + message.count(b"\x8a") <= MOST_VALUES:
        return False
    # What is left to read of each message around the one at hand, nothing that is empty: no longer than messages nest.
    found, left, turn = 0, [(0, len(message), fields)], turns()
    for _ in range(_MOST_FIELDS):
        at, end, below = left.pop()
        number, start, after = _field(message, at, end)
        if after < end:
            left.append((after, end, below))
        inner = below.get(number)
        if inner is not None:
            found += inner is _ENTRY or below is _LIST
            if start < after:
                left.append((start, after, inner))
        if found > MOST_VALUES:
            return True
        if not left:
            return False
        if len(left) > _DEEPEST:
            raise MalformedError
        if next(turn):
            yield
    return True


def _field(message: bytes, at: int, end: int) -> tuple[int, int, int]:
    """(number, or 0 for what holds no message; where the content starts; where it ends) of the field at `at`."""
    tag, start = _varint(message, at, end)
    kind, number = tag & 7, 0
    if kind == _VARINT:
        _, after = _varint(message, start, end)
    elif kind == _SIZED:
        size, start = _varint(message, start, end)
        number, after = (tag & 0xFFFFFFFF) >> 3, start + size
    elif kind in {_EIGHT, _FOUR}:
        after = start + (8 if kind == _EIGHT else 4)
    elif kind in _GROUPS:
        # What stands in a group is counted as if it stood beside it: at worst too high.
        after = start
    else:
        raise MalformedError
    if after > end:
        raise MalformedError
    return number, start, after


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    """(the number at `at`, where it ends)."""
    value = shift = 0
    while at < end and shift < _VARINT_BITS:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedError
