"""Deterministic CBOR (RFC 8949 section 4.2.1) of JSON values: what `fractional` v3 hashes."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

from evaluator.targeting.values import RuleError, real

if TYPE_CHECKING:
    from evaluator.flags.model import Json
    from evaluator.targeting.frame import Frame

MOST_ITEMS: Final = 10_000
"""Most values within one encoded value."""
DEEPEST: Final = 64

_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**64 - 1


def encode(value: Json, frame: Frame | None = None) -> bytes:
    """Encode one JSON value. Numbers are read as float64 first, so that an integer and an equal float (as
    over gRPC) are encoded alike: whole ones within 64 bits as integers, -0.0 included, others as the shortest
    float that keeps them. Keys are sorted by their encoded bytes. frame: is charged a step for each value
    within, and one for every 512 bytes. Raises RuleError where it is too large or deep, or no Unicode.
    """
    out: list[bytes] = []
    _encode(value, out, 0)
    encoded = b"".join(out)
    if frame is not None:
        frame.charge(len(out) + (len(encoded) >> 9))
    return encoded


def _encode(value: Json, out: list[bytes], depth: int) -> None:
    if len(out) > MOST_ITEMS or depth > DEEPEST:
        raise RuleError("fractional is given too large a value")
    if value is None or value is True or value is False:
        out.append(b"\xf6" if value is None else b"\xf5" if value else b"\xf4")
    elif isinstance(value, str):
        out.append(encode_text(value))
    elif isinstance(value, int | float):
        out.append(_number(value))
    elif isinstance(value, list):
        out.append(_head(4, len(value)))
        for item in value:
            _encode(item, out, depth + 1)
    else:
        out.append(_head(5, len(value)))
        for key in sorted(value, key=encode_text):
            out.append(encode_text(key))
            _encode(value[key], out, depth + 1)


def encode_text(value: str) -> bytes:
    """Encode one text string."""
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise RuleError("fractional is given text that is not Unicode") from None
    return _head(3, len(raw)) + raw


def _number(value: float) -> bytes:
    number = real(value)
    whole = int(number) if math.isfinite(number) else None
    if whole is None or whole != number or not _LEAST_INTEGER <= whole <= _MOST_INTEGER:
        return _float(number)
    return _head(0, whole) if whole >= 0 else _head(1, -1 - whole)


def _float(value: float) -> bytes:
    if math.isnan(value):
        return b"\xf9\x7e\x00"
    for initial, layout in ((b"\xf9", ">e"), (b"\xfa", ">f")):
        try:
            packed = struct.pack(layout, value)
        except OverflowError:
            continue
        if struct.unpack(layout, packed)[0] == value:
            return initial + packed
    return b"\xfb" + struct.pack(">d", value)


def _head(major: int, count: int) -> bytes:
    if count < 24:
        return bytes((major << 5 | count,))
    for additional, width in ((24, 1), (25, 2), (26, 4)):
        if count < 1 << 8 * width:
            return bytes((major << 5 | additional,)) + count.to_bytes(width, "big")
    return bytes((major << 5 | 27,)) + count.to_bytes(8, "big")
