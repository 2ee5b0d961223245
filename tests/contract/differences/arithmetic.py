"""`+`, `-`, `*`, `/`, `%`, `max`, `min`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import ARITHMETIC, CRASH, Difference

ARITHMETICAL = (
    Difference(
        "arithmetic with null, booleans, lists or objects", ARITHMETIC, {"+": [True, 1]}, "PARSE_ERROR", "2",
        "errors to the engine; the core reads them as JavaScript does",
        c.any_part(lambda part: not c.is_text(part) and not c.is_number(part)),
    ),
    Difference(
        "arithmetic with a text that is no plain number", ARITHMETIC, {"+": ["a", 1]}, "1", "GENERAL",
        "0 to the engine, not a number to the core",
        c.any_part(lambda part: c.is_text(part) and not c.number_in(part)),
    ),
    Difference(
        "arithmetic of one bare value", "- * / % max min", {"-": 5}, "PARSE_ERROR", "-5",
        "the engine takes a list only, but for `+`",
        lambda call: c.bare(call) and bool(call.parts) and not isinstance(call.parts[0], list),
    ),
    Difference(
        "minus and divide with three", "- /", {"-": [5, 1, 1]}, "3", "4",
        "the engine goes on, the core stops after two",
        lambda call: len(call.parts) > 2,
    ),
    Difference(
        "division by zero", "/ %", {"/": [1, 0]}, "PARSE_ERROR", CRASH + "ZeroDivisionError",
        "an infinity, which no JSON holds, to the engine; the core crashes",
        c.divides_by_zero,
    ),
    Difference(
        "the remainder of different signs", "%", {"%": [-1, 3]}, "-1", "2",
        "of the dividend's sign to the engine, of the divisor's to the core",
        c.signs_differ,
    ),
    Difference(
        "divide and remainder of fewer than two", "/ %", {"/": [6]}, "6", CRASH + "ZeroDivisionError",
        "the engine divides what is there; the core divides by null",
        c.fewer_than(2),
    ),
    Difference(
        "the greatest of none", "max min", {"max": []}, "DEFAULT", "GENERAL",
        "null to the engine, not a number to the core",
        c.fewer_than(1),
    ),
)  # fmt: skip
