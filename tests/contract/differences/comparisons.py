"""`==`, `===`, `<` and their like."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import COMPARISONS, EQUALITIES, FIRST, ORDERS, Difference

COMPARED = (
    Difference(
        "null beside zero", f"{EQUALITIES} <= >=", {"==": [None, 0]}, "false", "true",
        "null equals only null",
        c.beside(c.is_null, c.is_zero),
    ),
    Difference(
        "a number beside a text that is read in several ways", COMPARISONS, {"==": [0, ""]}, "true", "false",
        "blank, padded, hexadecimal, with underscores, infinite: Go, JavaScript and "
        "Python each read their own",
        c.beside(c.is_number_or_boolean, c.is_odd_text),
    ),
    Difference(
        "one list or object beside itself", "== != === !==", {"===": [FIRST, FIRST]}, "false", "true",
        "not a number to the engine, so equal to nothing; the core compares identities or contents",
        c.equal_containers,
        context={"a": [1]},
    ),
    Difference(
        "a short list beside a number", COMPARISONS, {"==": [FIRST, 5]}, "false", "true",
        "the core reads a list as JavaScript does, the engine as not a number",
        c.beside(c.is_short_list, c.is_number_or_boolean),
        context={"a": [5]},
    ),
    Difference(
        "a list or object beside a text", COMPARISONS, {"==": [FIRST, "a"]}, "false", "true",
        "as above; the core writes it as JavaScript does",
        c.beside(c.is_container, c.is_text),
        context={"a": ["a"]},
    ),
    Difference(
        "a boolean beside a number, strictly", "=== !==", {"===": [1, True]}, "false", "true",
        "Python's True is 1",
        c.equal_boolean_and_number,
    ),
    Difference(
        "the order of a text and null", ORDERS, {"<": ["a", None]}, "false", "true",
        "both are numbers to the engine; the core writes null as text",
        c.beside(c.is_text, c.is_null),
    ),
    Difference(
        "the order of lists", ORDERS, {"<=": [FIRST, None]}, "false", "true",
        "not a number to the engine",
        c.beside(c.is_short_list, lambda other: not isinstance(other, str)),
        context={"a": []},
    ),
    Difference(
        "null as an upper bound", ORDERS, {"<": [1, 2, FIRST]}, "false", "true",
        "the core takes it for no bound",
        lambda call: len(call.parts) > 2 and call.parts[2] is None,
    ),
    Difference(
        "a comparison of fewer than two", f"{COMPARISONS} === !==", {"==": [None]}, "false", "true",
        "nothing equals or precedes to the engine; the core compares with null",
        c.fewer_than(2),
    ),
    Difference(
        "an order of more than three", ORDERS, {"<": [1, 2, 1, 1]}, "true", "false",
        "the engine looks at two or at three",
        lambda call: len(call.parts) > 3,
    ),
)  # fmt: skip
