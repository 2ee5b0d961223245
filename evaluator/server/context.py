"""The evaluation context of a request, and values as every JSON answer writes them.

Numbers are written as flagd does, whatever the protocol.

flagd holds each number as a float64 and writes it as Go does (https://pkg.go.dev/encoding/json#Marshal): a
whole one below 10^21 without a fraction, in the fewest digits that read back as the same float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from orjson import Fragment

from evaluator.flags.model import EMPTY, Json
from evaluator.flags.text import normal_number, with_numbers
from evaluator.http.messages import Headers, header
from evaluator.targeting.values import MOST_LEVELS, nests_deeper

if TYPE_CHECKING:
    from collections.abc import Mapping


Context: TypeAlias = dict[str, Any]

MOST_VALUES: Final = 10_000
"""Most members of objects and elements of lists in one request: reading each takes a microsecond."""
TOO_MANY: Final = f"the context has more than {MOST_VALUES:,} values"


@dataclass(frozen=True, slots=True)
class ContextSources:
    """Values that override a client's context: headers over fixed values, both over the client's."""

    values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Values by context key."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Context key by header name in lower case."""

    def lay_over(self, context: dict[str, Any], headers: Headers) -> dict[str, Any]:
        """Add the values to `context` in place, and return it."""
        if self.values:
            context.update(self.values)
        for name, key in self.headers.items():
            value = header(headers, name)
            if value is not None:
                context[key] = value
        return context


def too_many_in_json(text: bytes, most: int = MOST_VALUES) -> bool:
    """Return whether the JSON `text` holds more than `most` values; any result for invalid JSON."""
    # A value takes at least two bytes.
    if len(text) <= 2 * most or _separators(text) <= most:
        return False
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    # A value has at most two texts, its name and itself: more quotes than that need not be distinguished.
    pieces = bare.split(b'"', 4 * most)
    if len(pieces) > 4 * most:
        return True
    outside = b"0".join(pieces[::2])
    return _separators(outside) - outside.count(b"[]") - outside.count(b"{}") > most


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def read_too_deep(document: Any, text: bytes) -> bool:
    """Whether the `document` of the JSON `text` nests deeper than MOST_LEVELS; few have as many brackets."""
    # A level takes at least two bytes.
    return (
        len(text) > 2 * MOST_LEVELS
        and text.count(b"{") + text.count(b"[") > MOST_LEVELS
        and nests_deeper(document, MOST_LEVELS)
    )


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
