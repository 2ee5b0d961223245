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
)

ARGUMENTS = (
    Difference(
        "arguments that a rule gives",
        EAGER,
        lambda call: c.bare(call) and bool(call.parts) and isinstance(call.parts[0], list),
        "flagd's engine evaluates the arguments as one value and takes a list as the arguments",
        {"==": FIRST},
        "true",
        "false",
        {"a": [1, 1]},
    ),
    Difference(
        "a bare argument of if, and, or",
        "if ?: and or",
        c.bare,
        "the engine takes a list only",
        {"and": True},
        "PARSE_ERROR",
        "true",
    ),
    Difference(
        "operators of one engine",
        "set abs contains_all contains_any contains_none log",
        lambda _: True,
        "flagd's engine has them and not the core's, but for `log`",
        {"abs": [-1]},
        "1",
        "PARSE_ERROR",
    ),
    Difference(
        "the truth of an empty object",
        TRUTHS,
        c.any_part(c.is_empty_object),
        "false to the engine, true to the core",
        {"!!": [FIRST]},
        "false",
        "true",
        {"a": {}},
    ),
    Difference(
        "an object as the outcome of if",
        "if ?:",
        lambda call: isinstance(call.result, dict) or c.holds_object(call.result),
        "the engine would run it as a rule once more, which is refused here",
        {"if": [True, FIRST]},
        "PARSE_ERROR",
        "GENERAL",
        OBJECT,
    ),
    Difference(
        "numbers beyond 2^53",
        f"{COMPARISONS} === !== {ARITHMETIC} in",
        lambda call: c.any_part(c.is_inexact)(call) or c.is_inexact(call.result),
        "every number is a float64 to the engine; the core has Python's integers",
        {"==": [2**53, 2**53 + 1]},
        "true",
        "false",
    ),
)
