"""`in`, `cat`, `substr`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import FIRST, OBJECT, Difference

TEXTS = (
    Difference(
        "what is no text, in a text",
        "in",
        lambda call: (
            len(call.parts) > 1 and c.is_text(call.parts[1]) and not c.is_text(call.parts[0])
        ),
        "the engine panics, which flagd answers with PARSE_ERROR; the core writes the needle as text",
        {"in": [1, "a1"]},
        "PARSE_ERROR",
        "true",
    ),
    Difference(
        "a list in a list",
        "in",
        c.needle_and_list(lambda _, items: any(isinstance(item, list) for item in items)),
        "the engine takes it for a range",
        {"in": [2, [[1, 3]]]},
        "true",
        "false",
    ),
    Difference(
        "a number in a list of other things",
        "in",
        c.needle_and_list(lambda one, items: c.is_number(one) and not all(map(c.is_number, items))),
        "the engine reads each element as a number",
        {"in": [1, ["1"]]},
        "true",
        "false",
    ),
    Difference(
        "a boolean in a list of numbers",
        "in",
        c.needle_and_list(
            lambda one, items: isinstance(one, bool) and any(map(c.is_number, items))
        ),
        "Python's True is 1",
        {"in": [True, [1]]},
        "false",
        "true",
    ),
    Difference(
        "an object or a list, in a list",
        "in",
        c.needle_and_list(lambda one, items: c.is_container(one) and bool(items)),
        "the engine cannot compare two of them",
        {"in": [FIRST, [FIRST]]},
        "PARSE_ERROR",
        "true",
        OBJECT,
    ),
    Difference(
        "in without arguments",
        "in",
        c.fewer_than(1),
        "an error to the engine",
        {"in": []},
        "PARSE_ERROR",
        "false",
    ),
    Difference(
        "cat of what is no text or number",
        "cat",
        c.any_part(lambda part: not c.is_text(part) and not c.is_number(part)),
        "null is empty to the engine, the others are errors; the core writes them as text",
        {"cat": ["a", None]},
        "a",
        "GENERAL",
    ),
    Difference(
        "cat of a number that is spelled in several ways",
        "cat",
        c.any_part(c.spelled_apart),
        "the engine writes a float64's shortest digits without an exponent, the core 15 digits",
        {"cat": [0.1 + 0.2]},
        "0.30000000000000004",
        "0.3",
    ),
    Difference(
        "cat with blanks at an end",
        "cat",
        c.cat_is_trimmed,
        "the engine trims what it joins",
        {"cat": ["a", " "]},
        "a",
        "GENERAL",
    ),
    Difference(
        "cat of one bare value",
        "cat",
        lambda call: c.bare(call) and not all(map(c.is_text, call.parts)),
        "the engine takes a list or a text",
        {"cat": 5},
        "PARSE_ERROR",
        "5",
    ),
    Difference(
        "substr beyond the text",
        "substr",
        c.substr_leaves_text,
        "the engine gives the whole text, or an error where the end is before the start",
        {"substr": ["a", 3]},
        "a",
        "GENERAL",
    ),
    Difference(
        "substr of what is no text, or from what is no number",
        "substr",
        c.substr_operands,
        "the core reads null, booleans and lists as JavaScript does",
        {"substr": [True, 0]},
        "PARSE_ERROR",
        "GENERAL",
    ),
    Difference(
        "substr without a start, or with four arguments",
        "substr",
        lambda call: len(call.parts) not in {2, 3},
        "an error to the engine; of four, it looks at two",
        {"substr": ["a"]},
        "PARSE_ERROR",
        "a",
    ),
)
