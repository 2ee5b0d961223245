"""Operators that only one engine has, arguments in odd forms, and truth."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import (
    ARITHMETIC,
    COMPARISONS,
    EAGER,
    FIRST,
    OBJECT,
    TRUTHS,
    Difference,
)  # fmt: skip

ARGUMENTS = (
    Difference(
        "arguments that a rule gives", EAGER, {"==": FIRST}, "true", "false",
        "flagd's engine evaluates the arguments as one value and takes a list as the arguments",
        lambda call: c.bare(call) and bool(call.parts) and isinstance(call.parts[0], list),
        context={"a": [1, 1]},
    ),
    Difference(
        "a bare argument of if, and, or", "if ?: and or", {"and": True}, "PARSE_ERROR", "true",
        "the engine takes a list only",
        c.bare,
    ),
    Difference(
        "operators of one engine", "set abs contains_all contains_any contains_none log", {"abs": [-1]}, "1",
        "PARSE_ERROR",
        "flagd's engine has them and not the core's, but for `log`",
        lambda _: True,
    ),
    Difference(
        "the truth of an empty object", TRUTHS, {"!!": [FIRST]}, "false", "true",
        "false to the engine, true to the core",
        c.any_part(c.is_empty_object),
        context={"a": {}},
    ),
    Difference(
        "an object as the outcome of if", "if ?:", {"if": [True, FIRST]}, "PARSE_ERROR", "GENERAL",
        "the engine would run it as a rule once more, which is refused here",
        lambda call: isinstance(call.result, dict) or c.holds_object(call.result),
        context=OBJECT,
    ),
    Difference(
        "numbers beyond 2^53", f"{COMPARISONS} === !== {ARITHMETIC} in", {"==": [2**53, 2**53 + 1]}, "true",
        "false",
        "every number is a float64 to the engine; the core has Python's integers",
        lambda call: c.any_part(c.is_inexact)(call) or c.is_inexact(call.result),
    ),
)  # fmt: skip
