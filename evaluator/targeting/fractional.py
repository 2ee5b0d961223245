"""`fractional` assigns users to buckets, the same user always to the same. Both generations. Pure.

v2 hashes text: a bucketing text as it is, else flag key and targeting key joined. v3 hashes CBOR: any
bucketing value, else the list of flag key and targeting key. Weights are integers, so every platform agrees.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import mmh3

from evaluator.flags.known_operators import MOST_WEIGHT
from evaluator.flags.model import Bucketing, Json
from evaluator.targeting.frame import (
    FREE_TEXT,
    CompileScope,
    Element,
    Evaluate,
    Frame,
    Path,
    data_of,
    is_static,
)
from evaluator.targeting.values import RuleError, real
from evaluator.targeting.variables import FLAGD

if TYPE_CHECKING:
    from collections.abc import Callable


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


_KeyOf: TypeAlias = "Callable[[Json, Json, Frame], str | bytes | None]"
"""(first argument, evaluated arguments, frame) → value to hash; None if there is none."""

_Reader: TypeAlias = "Callable[[Json, Frame], tuple[Json, Buckets | None]]"
"""(evaluated arguments, frame) → (first argument, buckets); None if the buckets are invalid."""

TARGETING_KEY: Final = "targetingKey"
_LIST_OF_TWO: Final = b"\x82"
_LEAST_WEIGHT: Final = -(2**63)
"""Smallest valid weight in flagd; negative weights count as 0."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Results by cumulative weight."""

    results: tuple[Json, ...]
    ends: tuple[int, ...]
    """The exclusive end of each result's range; an empty range repeats the end before it."""
    total: int
    """The sum of all weights, at least 1."""

    def result(self, bucket: int) -> Json:
        """The result that owns `bucket`, 0 <= bucket < total."""
        return self.results[bisect_right(self.ends, bucket)]


def fractional(values: Json, scope: CompileScope) -> Evaluate:
    """Compile `fractional`; any invalid argument makes the result null, as in flagd."""
    read = _reader(values, scope)
    path, v3 = scope.path, scope.options.bucketing is Bucketing.V3
    if scope.options.hash_of is not None:
        return _by_given_hash(read, scope.options.hash_of, path)
    key_of = _encoded_key(scope) if v3 else _text_key(scope)

    def distribute(argument: Json, frame: Frame) -> Json:
        first, buckets = read(argument, frame)
        hashed = key_of(first, argument, frame)
        if hashed is None or buckets is None:
            if frame.trace is None:
                return None
            return frame.report(path, None, why=_why_none(first, buckets, null_is_key=not v3))
        bucket = bucket_of(hashed, buckets.total)
        result = buckets.result(bucket)
        if frame.trace is None:
            return result
        shown = hashed if isinstance(hashed, str) else hashed.hex()
        return frame.report(path, result, bucket=bucket, of=buckets.total, hashed=shown)

    literal = None if scope.in_body else _literal_buckets(values)
    return distribute if literal is None else _by_targeting_key(literal, scope, distribute)


def _by_given_hash(read: _Reader, hash_of: Callable[[], int], path: Path) -> Evaluate:
    """Compile `fractional` for a test that says what the hash is; reports the end of the bucket's range."""

    def distribute_given(argument: Json, frame: Frame) -> Json:
        first, buckets = read(argument, frame)
        if buckets is None:
            return frame.report(path, None, why=_why_none(first, buckets, null_is_key=True))
        bucket = hash_of() * buckets.total >> 32
        end = buckets.ends[bisect_right(buckets.ends, bucket)]
        return frame.report(path, buckets.result(bucket), bucket=bucket, of=buckets.total, end=end)

    return distribute_given


def _literal_buckets(values: Json) -> Buckets | None:
    """The buckets of `[[result, weight], …]` without any operator; None for other forms."""
    if not isinstance(values, list) or not values or not isinstance(values[0], list):
        return None
    return read_buckets(values) if is_static(values) else None


def _by_targeting_key(buckets: Buckets, scope: CompileScope, distribute: Evaluate) -> Evaluate:
    """Compile the commonest form: literal buckets, of the user that the targetingKey names. Everything that
    does not depend on the user is computed here; rare contexts and explanations go through `distribute`.
    """
    v3 = scope.options.bucketing is Bucketing.V3
    flag_key = scope.options.flag_key
    if not flag_key.isascii():
        return distribute
    prefix = _LIST_OF_TWO + encode_text(flag_key) if v3 else flag_key.encode()
    longest = FREE_TEXT - len(flag_key)
    encode = encode_text if v3 else str.encode
    results, ends, total, digest = buckets.results, buckets.ends, buckets.total, mmh3.mmh3_32_uintdigest

    def distribute_user(argument: Json, frame: Frame) -> Json:
        if frame.trace is None and argument.__class__ is dict:
            unit = argument.get(TARGETING_KEY)
            if unit.__class__ is str and unit and len(unit) <= longest and unit.isascii():
                return results[bisect_right(ends, digest(prefix + encode(unit)) * total >> 32)]
        return distribute(argument, frame)

    return distribute_user


def _why_none(first: Json, buckets: Buckets | None, *, null_is_key: bool) -> str:
    """Return why there is no result, for an explanation. `null_is_key`: with null as the first argument, the
    targetingKey is hashed.
    """
    if buckets is None:
        return "its buckets are not valid"
    if isinstance(first, list) or (first is None and null_is_key):
        return "the context has no targetingKey"
    return "what it hashes is null" if first is None else "what it hashes is no text"


def _reader(values: Json, scope: CompileScope) -> _Reader:
    """Return the evaluator of the arguments; literal buckets are read only once."""
    if not isinstance(values, list) or not values:
        return _read_evaluated(scope.child(values))
    shorthand = isinstance(values[0], list)
    entries = values if shorthand else values[1:]
    if not all(is_static(entry) for entry in entries):
        return _read_evaluated(scope.child(values))
    buckets = read_buckets(entries)
    known = (values[0], buckets)
    if shorthand:
        return lambda _argument, _frame: known
    first_of = scope.child(values[0], 0)

    def read(argument: Json, frame: Frame) -> tuple[Json, Buckets | None]:
        first = first_of(argument, frame)
        return first, read_buckets([first, *entries]) if isinstance(first, list) else buckets

    return read


def _read_evaluated(arguments_of: Evaluate) -> _Reader:
    def read(argument: Json, frame: Frame) -> tuple[Json, Buckets | None]:
        arguments = arguments_of(argument, frame)
        if not isinstance(arguments, list) or not arguments:
            return None, None
        first = arguments[0]
        return first, read_buckets(arguments if isinstance(first, list) else arguments[1:])

    return read


def _text_key(scope: CompileScope) -> _KeyOf:
    in_body, own_key = scope.in_body, scope.options.flag_key

    def key_of(first: Json, argument: Json, frame: Frame) -> str | None:
        if first.__class__ is str:
            key = first
        elif first is None or isinstance(first, list):
            unit = _targeting_key(argument)
            if unit is None:
                return None
            key = (_flag_key_within(argument) if in_body else own_key) + unit
        else:
            return None
        if len(key) > FREE_TEXT:
            frame.charge_reading(key)
        return key

    return key_of


def _encoded_key(scope: CompileScope) -> _KeyOf:
    in_body, own_key = scope.in_body, encode_text(scope.options.flag_key)

    def key_of(first: Json, argument: Json, frame: Frame) -> bytes | None:
        if isinstance(first, list):
            unit = _targeting_key(argument)
            if unit is None:
                return None
            flag_key = encode_text(_flag_key_within(argument)) if in_body else own_key
            head, text = _LIST_OF_TWO + flag_key, unit
        elif first.__class__ is str:
            head, text = b"", first
        else:
            return None if first is None else encode(first, frame)
        if len(text) > FREE_TEXT:
            frame.charge_reading(text)
        return head + encode_text(text)

    return key_of


def _targeting_key(argument: Json) -> str | None:
    """Return the targeting key; in a loop it is read from the element."""
    data = argument.data if argument.__class__ is Element else argument
    unit = data.get(TARGETING_KEY) if isinstance(data, dict) else None
    return unit if isinstance(unit, str) and unit else None


def _flag_key_within(argument: Json) -> str:
    """Return the flag's key in a loop, whose element rarely has `$flagd`."""
    properties = data_of(argument).get(FLAGD)
    key = properties.get("flagKey") if isinstance(properties, dict) else None
    return key if isinstance(key, str) else ""


def bucket_of(hashed: str | bytes, total: int) -> int:
    """The bucket, 0 <= bucket < total, of text (as UTF-8) or bytes: murmur3 x86 32, seed 0, scaled."""
    try:
        # Encoded here: given a lone surrogate, mmh3 itself crashes the process.
        raw = hashed.encode() if isinstance(hashed, str) else hashed
    except UnicodeEncodeError:
        raise RuleError("fractional is given text that is not Unicode") from None
    return mmh3.mmh3_32_uintdigest(raw) * total >> 32


def read_buckets(entries: list[Json]) -> Buckets | None:
    """Read evaluated `[result, weight]` entries; None where they are invalid or nothing has weight."""
    results, ends, total = [], [], 0
    for entry in entries:
        if not isinstance(entry, list) or not entry or isinstance(entry[0], list | dict):
            return None
        weight = _weight(entry[1] if len(entry) > 1 else None)
        if weight is None:
            return None
        total += weight
        results.append(entry[0])
        ends.append(total)
    return Buckets(tuple(results), tuple(ends), total) if 0 < total <= MOST_WEIGHT else None


def _weight(value: Json) -> int | None:
    """Return an entry's weight: 1 if absent; negative ones, which computed roll-outs produce, count as 0."""
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not _LEAST_WEIGHT <= value <= MOST_WEIGHT or value != value // 1:
        return None
    return max(0, int(value))
