"""From what a rule gives to the variant it names, as in flagd: JSON text without its quotes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from evaluator.flags.checking.outcomes import number_text
from evaluator.targeting.values import RuleError, is_number, parts, real

if TYPE_CHECKING:
    from evaluator.flags.model import Json

_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in (*range(32), 0x2028, 0x2029, *map(ord, "<>&"))}
    | {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\\": "\\\\", '"': "\\"}
)
"""Go's `encoding/json` escapes; an escaped quote leaves a backslash, as flagd removes all quotes."""


def variant_name(result: Json) -> str | None:
    """The name that `result` comes to; None for lists and objects, which name no variant. Raises RuleError
    for numbers that JSON cannot hold, wherever they are.
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
        raise RuleError("the rule came to a number that JSON cannot hold")
    return None


def texts_in(rule: Json) -> frozenset[str]:
    """The texts that stand in `rule` as values, names of operators and keys of objects aside."""
    return frozenset(part for part in parts(rule) if isinstance(part, str))
