"""Numbers and lines of a document's text, its bounds, and quotes for messages. Pure.

flagd reads every JSON number as a float64, so every number here is a float64. The value is held in one form,
whatever the spelling:

* an `int` where the float64 is a whole number from -2^63 up to (not including) 2^63, what a 64-bit integer
  holds: `3`, `3.0` and `3e0` are 3, `-0.0` is 0, 2^53 + 1 is 2^53;
* a `float` otherwise: fractions, and whole numbers that 64 bits cannot hold.

Two numbers are hence equal in value exactly when they are equal in type and value, and a whole number is
written as an integer by every encoder.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evaluator.flags.model import Json, Path

QUOTED: Final = 60
"""Most characters of a document's own text that a message repeats."""

_EXACT: Final = 2**53
"""Up to here every whole number is exact as a float64."""
_BEYOND_64_BITS: Final = 2.0**63

_SHORT: Final = 16
"""Integers of fewer characters are all below 2^53."""
_LONGEST: Final = 4_000
"""Most characters of a literal; a longer one is refused."""

_PLAIN: Final = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one document; anything past a bound is an error."""

    document_bytes: int = 16 * 1024 * 1024
    flags: int = 100_000
    depth: int = 100
    """Most containers inside each other."""
    nodes: int = 2_000_000
    """Most values of any kind in one document."""
    alias_nodes: int = 10_000
    """Most values that YAML aliases may add to one document."""
    problems: int = 1_000
    """Most reported problems; of further ones only the number is reported."""


DEFAULT: Final = Bounds()


class Lines:
    """Line and column of an offset, both from 1 and in characters."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of the character at `offset`."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def quote(text: object) -> str:
    """Return a value as JSON for a message, cut if it is long."""
    shown = json.dumps(text, ensure_ascii=False, default=str)
    return visible(shown if len(shown) <= QUOTED else f"{shown[: QUOTED - 1]}…")


def choices(names: Iterable[str]) -> str:
    """Return up to five names, quoted, for "choose one of …"."""
    first = list(islice(names, 6))
    shown = ", ".join(quote(name) for name in first[:5])
    return f"{shown}, …" if len(first) > 5 else shown


def json_path(path: Path) -> str:
    """Return a path in its usual notation: `$.flags.banner.variants["on call"]`."""
    parts = ["$"]
    for step in path:
        if isinstance(step, str) and _PLAIN.fullmatch(step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{visible(json.dumps(step, ensure_ascii=False))}]")
    return "".join(parts)


def visible(text: str) -> str:
    """Return the text with unprintable characters as `\\uXXXX`, so that it is safe in logs and terminals."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    number = ord(sign)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def read_integer(literal: str) -> int | float | None:
    """`read_number` for a literal that has neither a point nor an exponent."""
    return int(literal) if len(literal) < _SHORT else read_number(literal)


def read_number(literal: str) -> int | float | None:
    """Return the value of a decimal literal; None if no float64 is that large."""
    return None if len(literal) > _LONGEST else _exact_number(float(literal))


def normal_number(value: float) -> int | float:
    """Convert a decoder's number as `read_number` does. Raises ValueError if it is no finite float64."""
    if -_EXACT <= value <= _EXACT and type(value) is int:
        return value
    try:
        held = _exact_number(float(value))
    except OverflowError:
        held = None
    if held is None:
        raise ValueError("a number is not a finite float64")
    return held


def normal(value: Json) -> Json:
    """A JSON value from any decoder, made anew with its numbers as the parser holds them. Raises ValueError
    for a number that is no finite float64. It recurses: bound the depth of what strangers send first.
    """
    return with_numbers(value, normal_number)


def with_numbers(value: Json, number: Callable[[float], Any]) -> Any:
    """Copy a JSON value with each number converted by `number`. It recurses."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is dict:
        return {key: with_numbers(item, number) for key, item in value.items()}
    if kind is list:
        return [with_numbers(item, number) for item in value]
    return number(value)


def _exact_number(value: float) -> int | float | None:
    if -_BEYOND_64_BITS <= value < _BEYOND_64_BITS:
        return int(value) if value.is_integer() else value
    return value if isfinite(value) else None


def number_text(value: float) -> str:
    """Return a finite number as Go writes it in JSON."""
    if value and not 1e-6 <= abs(value) < 1e21:
        return repr(value).replace("e-0", "e-")
    return fixed_notation(value)


def fixed_notation(value: float) -> str:
    """Return the shortest digits that read back as the finite `value`, without an exponent."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")
