"""Reads requests of flagd.evaluation's Resolve methods from protobuf's wire format
(https://protobuf.dev/programming-guides/encoding): a flag's key, and a context of texts, numbers and
booleans.

It reads what clients usually send. protobuf must read the rest: nested values, unknown or repeated fields,
varints that are longer than they need to be, and whatever is malformed. Compiled, this takes a third of the
time of protobuf, which makes an object of each value; interpreted it takes longer.
"""

from __future__ import annotations

from struct import Struct
from types import FunctionType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from mypy_extensions import i64

MOST_BYTES: Final = 8_192
"""Bytes of a request to read here: larger ones are read in steps."""

_FLAG_KEY: Final = 0x0A
_CONTEXT: Final = 0x12
_ENTRY: Final = 0x0A
"""Of Struct.fields, a map."""
_ENTRY_KEY: Final = 0x0A
_ENTRY_VALUE: Final = 0x12
_NULL: Final = 0x08
_NUMBER: Final = 0x11
_TEXT: Final = 0x1A
_BOOLEAN: Final = 0x20
"""Tags: the number of a field, and its type on the wire in the lower three bits."""
_read_double: Final = Struct("<d").unpack_from

Scalar: TypeAlias = str | float | bool | None


def read_usual(message: bytes) -> tuple[str, dict[str, Scalar]] | None:
    """Return (flag key, context) of a usual request, and None for any other."""
    try:
        return _request(message)
    except (IndexError, ValueError):
        return None


def _request(message: bytes) -> tuple[str, dict[str, Scalar]] | None:
    key: str | None = None
    context: dict[str, Scalar] | None = None
    at: i64 = 0
    end: i64 = len(message)
    while at < end:
        tag = message[at]
        size, start = _length(message, at + 1)
        at = start + size
        if at > end:
            return None
        if tag == _FLAG_KEY and key is None:
            key = message[start:at].decode()
        elif tag == _CONTEXT and context is None:
            context = _fields(message, start, at)
            if context is None:
                return None
        else:
            return None
    if key is None:
        return None
    return key, {} if context is None else context


def _fields(message: bytes, at: i64, end: i64) -> dict[str, Scalar] | None:
    """Return the values of a Struct from `at` to `end`."""
    values: dict[str, Scalar] = {}
    while at < end:
        size, start = _length(message, at + 1)
        if message[at] != _ENTRY or message[start] != _ENTRY_KEY:
            return None
        at = start + size
        size, start = _length(message, start + 1)
        key_end: i64 = start + size
        if at > end or key_end >= at or message[key_end] != _ENTRY_VALUE:
            return None
        size, value = _length(message, key_end + 1)
        if not size or value + size != at:
            return None
        key, kind = message[start:key_end].decode(), message[value]
        if kind == _TEXT:
            size, start = _length(message, value + 1)
            if start + size != at:
                return None
            values[key] = message[start:at].decode()
        elif kind == _NUMBER and size == 9:
            number: float = _read_double(message, value + 1)[0]
            values[key] = number
        elif kind == _BOOLEAN and size == 2 and message[value + 1] <= 1:
            values[key] = message[value + 1] == 1
        elif kind == _NULL and size == 2 and message[value + 1] == 0:
            values[key] = None
        else:
            return None
    return values


def _length(message: bytes, at: i64) -> tuple[i64, i64]:
    """Return the length at `at`, of at most two bytes, and its end. Raises IndexError or ValueError."""
    size: i64 = message[at]
    if size < 0x80:
        return size, at + 1
    high: i64 = message[at + 1]
    if not 0 < high < 0x80:
        raise ValueError
    return size & 0x7F | high << 7, at + 2


COMPILED: Final = not isinstance(read_usual, FunctionType)
"""Whether this module is compiled."""
