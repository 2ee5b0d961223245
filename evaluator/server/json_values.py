"""Values of flags and metadata as every JSON answer writes them: numbers as flagd does, whatever the
protocol. Pure.

flagd holds each number as a float64 and writes it as Go does (https://pkg.go.dev/encoding/json#Marshal): a
whole one below 10^21 without a fraction, in the fewest digits that read back as the same float64.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from orjson import Fragment

from evaluator.flags.syntax.text import normal_number, with_numbers

if TYPE_CHECKING:
    from evaluator.flags.model import Json

_EXACT: Final = 2**53
"""Up to here a whole number has as few digits as it can."""
_LARGEST_INTEGER: Final = 2**63 - 1
"""Largest number that orjson certainly writes as an integer."""
_WITHOUT_EXPONENT: Final = 1e21


def json_value(value: Json) -> Any:
    """`value` for `orjson.dumps`; raises ValueError for a number that is no finite float64."""
    return with_numbers(value, _number)


def _number(value: float) -> Any:
    held = normal_number(value)
    if -_EXACT <= held <= _EXACT or abs(held) >= _WITHOUT_EXPONENT:
        return held
    digits = int(Decimal(repr(float(held))))
    return digits if abs(digits) <= _LARGEST_INTEGER else Fragment(str(digits).encode())
