"""How flagd's engine reads JSON values, and its arithmetic. Pure.

Values are read as a number, as text, as equal, as less.

The engine is Go's `diegoholiveira/jsonlogic` 3.9, where every number is a float64. It has two readings of a
number: its own (`number`), which refuses null and booleans and takes unreadable text for 0, and JavaScript's
(`js_number`). Truth needs no function here: of JSON's values, Python and the engine hold the same ones false.
"""

from __future__ import annotations

import math
import re
from functools import reduce
from operator import sub
from typing import TYPE_CHECKING, Final

from evaluator.flags import text as spelling
from evaluator.flags.known_operators import is_scalars
from evaluator.flags.text import number_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evaluator.flags.model import Json


WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Characters that Go trims; Python's strip removes more."""

MOST_DIGITS: Final = 4096
"""Most characters of a text that is read as a number."""

_DECIMAL = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?)|nan", re.IGNORECASE
)
_HEXADECIMAL = re.compile(r"[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)p[+-]?[0-9]+", re.IGNORECASE)


class RuleError(Exception):
    """The engine cannot evaluate this rule with this context; flagd answers PARSE_ERROR. Messages never quote
    the context: they are kept, and a context may hold personal data.
    """


def parts(value: Json) -> Iterator[Json]:
    """Yield the value and all values within it, in no order; without keys of objects."""
    pending = [value]
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, dict | list):
            pending.extend(part.values() if isinstance(part, dict) else part)


MOST_LEVELS: Final = 64
"""Nested objects and lists of an evaluation context: rules walk it by recursion."""


def nests_deeper(value: Json, levels: int) -> bool:
    """Return whether lists and objects in `value` nest deeper than `levels`; never recurses."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(levels):
        level = [
            child
            for node in level
            if not is_scalars(node)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
    return any(level)


def is_number(value: Json) -> bool:
    """Whether `value` is a JSON number; Python's booleans are not."""
    return type(value) is float or type(value) is int


def parse_float(text: str) -> float | None:
    """Read `text` as Go's ParseFloat does, or None; out of range: infinity. RuleError beyond MOST_DIGITS."""
    if len(text) > MOST_DIGITS:
        raise RuleError("a text is too long to be read as a number")
    if _DECIMAL.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return None


def real(value: float) -> float:
    """Return `value` as a float64; RuleError if no float64 is that large."""
    try:
        return float(value)
    except OverflowError:
        raise RuleError("a number is out of range") from None


def number(value: Json) -> float:
    """Read the engine's way: text that is no number is 0; null, booleans, lists and objects are errors."""
    if type(value) is float:
        return value
    if type(value) is int:
        return real(value)
    if isinstance(value, str):
        parsed = parse_float(value)
        return 0.0 if parsed is None else parsed
    raise RuleError(f"expected a number, found {kind(value)}")


def whole(value: float) -> int:
    """Truncate toward zero; what no 64-bit integer can hold is the smallest one, as on amd64."""
    if math.isfinite(value) and -(2.0**63) <= value < 2.0**63:
        return int(value)
    return -(2**63)


def js_number(value: Json) -> float:
    """Read JavaScript's way: null and blank text are 0, what is no number is NaN."""
    if is_number(value):
        return real(value)
    if value is None or isinstance(value, bool):
        return 1.0 if value else 0.0
    if not isinstance(value, str):
        return math.nan
    if not value.strip(WHITE_SPACE):
        return 0.0
    parsed = parse_float(value)
    if parsed is None or (math.isinf(parsed) and "inf" not in value.lower()):
        return math.nan
    return parsed


def text(value: Json) -> str:
    """Read as text: null is empty; booleans, lists and objects are errors."""
    if isinstance(value, str):
        return value
    if is_number(value):
        return fixed_notation(real(value))
    if value is None:
        return ""
    raise RuleError(f"expected text, found {kind(value)}")


def fixed_notation(value: float) -> str:
    """The shortest digits that read back as `value`, without an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return spelling.fixed_notation(value)


def equals(left: Json, right: Json) -> bool:
    """`==`: null equals only null, texts compare as texts, the rest as JavaScript's numbers."""
    if left is None or right is None:
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return js_number(left) == js_number(right)


def strictly_equals(left: Json, right: Json) -> bool:
    """Evaluate `===`: equal values of one kind."""
    if left is None or right is None:
        return left is right
    return kind(left) == kind(right) and equals(left, right)


def less(left: Json, right: Json) -> bool:
    """`<`: texts by code points, the rest as JavaScript's numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    return js_number(left) < js_number(right)


def kind(value: Json) -> str:
    """Return the JSON kind of `value`, for messages and strict equality."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"


_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in (*range(32), 0x2028, 0x2029, *map(ord, "<>&"))}
    | {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\\": "\\\\", '"': "\\"}
)
"""Escapes of Go's `encoding/json`; an escaped quote leaves a backslash, as flagd removes all quotes."""


def variant_name(result: Json) -> str | None:
    """Return the variant name of `result`; None for lists and objects, which name no variant. Raises
    RuleError for numbers that JSON cannot hold.
    """
    if isinstance(result, str):
        return result.translate(_ESCAPES)
    if isinstance(result, bool):
        return "true" if result else "false"
    if is_number(result):
        value = real(result)
        if math.isfinite(value):
            return number_text(value)
    if any(isinstance(part, float) and not math.isfinite(part) for part in parts(result)):
        raise RuleError("the rule gave a number that JSON cannot represent")
    return None


def texts_in(rule: Json) -> frozenset[str]:
    """Return the texts that are values in `rule`, without operators' names and keys of objects."""
    return frozenset(part for part in parts(rule) if isinstance(part, str))


def require_list(values: Json) -> list[Json]:
    """Return the arguments. Raises RuleError for anything but a list."""
    if not isinstance(values, list):
        raise RuleError(f"expected a list of arguments, found {kind(values)}")
    return values


def first(values: Json, count: int) -> list[Json]:
    """Return all arguments. Raises RuleError for fewer than `count`."""
    if len(require_list(values)) < count:
        raise RuleError(f"expected {count} arguments")
    return require_list(values)


def extreme(choose: Callable[[list[float]], float]) -> Callable[[Json], Json]:
    """Make `max` or `min`; nothing of no numbers."""

    def extreme(values: Json) -> Json:
        numbers = [number(value) for value in require_list(values)]
        return choose(numbers) if numbers else None

    return extreme


def total(values: Json) -> Json:
    """`+`; of one value, its number."""
    if not isinstance(values, list):
        return number(values)
    if len(values) == 1:
        return number(values[0])
    result = 0.0
    for value in values:
        result += number(value)
    return result


def minus(values: Json) -> Json:
    """`-`: the negative of one number, or what is left of the first."""
    numbers = [number(value) for value in require_list(values)]
    if not numbers:
        return 0
    return -numbers[0] if len(numbers) == 1 else reduce(sub, numbers)


def product(values: Json) -> Json:
    """`*`; 1 of no numbers."""
    return math.prod(map(number, require_list(values)), start=1.0)


def quotient(values: Json) -> Json:
    """`/`, from left to right, as floating point divides."""
    numbers = [number(value) for value in require_list(values)]
    return reduce(_divide, numbers) if numbers else 0


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(values: Json) -> Json:
    """`%`, with the sign of the dividend."""
    left, right = (number(value) for value in first(values, 2)[:2])
    if not right or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.fmod(left, right)


def absolute(values: Json) -> Json:
    """`abs`, of the first of a list."""
    return abs(number(first(values, 1)[0] if isinstance(values, list) else values))
