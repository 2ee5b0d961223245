"""`+`, `-`, `*`, `/`, `%`, `max`, `min`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import ARITHMETIC, CRASH, Difference

ARITHMETICAL = (
    Difference(
        "arithmetic with null, booleans, lists or objects",
        ARITHMETIC,
        c.any_part(lambda part: not c.is_text(part) and not c.is_number(part)),
        "errors to the engine; the core reads them as JavaScript does",
        {"+": [True, 1]},
        "PARSE_ERROR",
        "2",
    ),
    Difference(
        "arithmetic with a text that is no plain number",
        ARITHMETIC,
        c.any_part(lambda part: c.is_text(part) and not c.number_in(part)),
        "0 to the engine, not a number to the core",
        {"+": ["a", 1]},
        "1",
        "GENERAL",
    ),
    Difference(
        "arithmetic of one bare value",
        "- * / % max min",
        lambda call: c.bare(call) and bool(call.parts) and not isinstance(call.parts[0], list),
        "the engine takes a list only, but for `+`",
        {"-": 5},
        "PARSE_ERROR",
        "-5",
    ),
    Difference(
        "minus and divide with three",
        "- /",
        lambda call: len(call.parts) > 2,
        "the engine goes on, the core stops after two",
        {"-": [5, 1, 1]},
        "3",
        "4",
    ),
    Difference(
        "division by zero",
        "/ %",
        c.divides_by_zero,
        "an infinity, which no JSON holds, to the engine; the core crashes",
        {"/": [1, 0]},
        "PARSE_ERROR",
        CRASH + "ZeroDivisionError",
    ),
    Difference(
        "the remainder of different signs",
        "%",
        c.signs_differ,
        "of the dividend's sign to the engine, of the divisor's to the core",
        {"%": [-1, 3]},
        "-1",
        "2",
    ),
    Difference(
        "divide and remainder of fewer than two",
        "/ %",
        c.fewer_than(2),
        "the engine divides what is there; the core divides by null",
        {"/": [6]},
        "6",
        CRASH + "ZeroDivisionError",
    ),
    Difference(
        "the greatest of none",
        "max min",
        c.fewer_than(1),
        "null to the engine, not a number to the core",
        {"max": []},
        "DEFAULT",
        "GENERAL",
    ),
)
