"""Converts number literals to values; no other module does so. Pure.

flagd reads every JSON number as a float64, so every number here is a float64. The value is held in one form,
whatever the spelling:

* an `int` where the float64 is a whole number from -2^63 up to (not including) 2^63, what a 64-bit integer
  holds: `3`, `3.0` and `3e0` are 3, `-0.0` is 0, 2^53 + 1 is 2^53;
* a `float` otherwise: fractions, and whole numbers that 64 bits cannot hold.

Two numbers are hence equal in value exactly when they are equal in type and value, and a whole number is
written as an integer by every encoder.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.flags.model import Json

_EXACT: Final = 2**53
"""Up to here every whole number is exact as a float64."""
_BEYOND_64_BITS: Final = 2.0**63

_SHORT: Final = 16
"""Integers of fewer characters are all below 2^53."""
_LONGEST: Final = 4_000
"""Most characters of a literal; a longer one is refused."""


def read_integer(literal: str) -> int | float | None:
    """`read_number` for a literal that has neither a point nor an exponent."""
    return int(literal) if len(literal) < _SHORT else read_number(literal)


def read_number(literal: str) -> int | float | None:
    """Return the value of a decimal literal; None if no float64 is that large."""
    return None if len(literal) > _LONGEST else _held(float(literal))


def normal_number(value: float) -> int | float:
    """Convert a decoder's number as `read_number` does. Raises ValueError if it is no finite float64."""
    if -_EXACT <= value <= _EXACT and type(value) is int:
        return value
    try:
        held = _held(float(value))
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
        return {key: with_numbers(each, number) for key, each in value.items()}
    if kind is list:
        return [with_numbers(each, number) for each in value]
    return number(value)


def _held(value: float) -> int | float | None:
    if -_BEYOND_64_BITS <= value < _BEYOND_64_BITS:
        return int(value) if value.is_integer() else value
    return value if isfinite(value) else None
