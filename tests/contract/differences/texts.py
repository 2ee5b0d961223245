"""`in`, `cat`, `substr`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import FIRST, OBJECT, Difference

TEXTS = (
    Difference(
        "what is no text, in a text", "in", {"in": [1, "a1"]}, "PARSE_ERROR", "true",
        "the engine panics, which flagd answers with PARSE_ERROR; the core writes the needle as text",
        lambda call: len(call.parts) > 1 and c.is_text(call.parts[1]) and not c.is_text(call.parts[0]),
    ),
    Difference(
        "a list in a list", "in", {"in": [2, [[1, 3]]]}, "true", "false",
        "the engine takes it for a range",
        c.needle_and_list(lambda _, items: any(isinstance(item, list) for item in items)),
    ),
    Difference(
        "a number in a list of other things", "in", {"in": [1, ["1"]]}, "true", "false",
        "the engine reads each element as a number",
        c.needle_and_list(lambda one, items: c.is_number(one) and not all(map(c.is_number, items))),
    ),
    Difference(
        "a boolean in a list of numbers", "in", {"in": [True, [1]]}, "false", "true",
        "Python's True is 1",
        c.needle_and_list(lambda one, items: isinstance(one, bool) and any(map(c.is_number, items))),
    ),
    Difference(
        "an object or a list, in a list", "in", {"in": [FIRST, [FIRST]]}, "PARSE_ERROR", "true",
        "the engine cannot compare two of them",
        c.needle_and_list(lambda one, items: c.is_container(one) and bool(items)),
        context=OBJECT,
    ),
    Difference(
        "in without arguments", "in", {"in": []}, "PARSE_ERROR", "false",
        "an error to the engine",
        c.fewer_than(1),
    ),
    Difference(
        "in without a list of arguments", "in", {"in": None}, "PARSE_ERROR", "false",
        "an error to the engine, which wants a list of arguments",
        lambda call: c.bare(call) and len(call.parts) == 1 and not isinstance(call.parts[0], list),
    ),
    Difference(
        "cat of what is no text or number", "cat", {"cat": ["a", None]}, "a", "GENERAL",
        "null is empty to the engine, the others are errors; the core writes them as text",
        c.any_part(lambda part: not c.is_text(part) and not c.is_number(part)),
    ),
    Difference(
        "cat of a number that is spelled in several ways", "cat", {"cat": [0.1 + 0.2]}, "0.30000000000000004",
        "0.3",
        "the engine writes a float64's shortest digits without an exponent, the core 15 digits",
        c.any_part(c.spelled_apart),
    ),
    Difference(
        "cat with blanks at an end", "cat", {"cat": ["a", " "]}, "a", "GENERAL",
        "the engine trims what it joins",
        c.cat_is_trimmed,
    ),
    Difference(
        "cat of one bare value", "cat", {"cat": 5}, "PARSE_ERROR", "5",
        "the engine takes a list or a text",
        lambda call: c.bare(call) and not all(map(c.is_text, call.parts)),
    ),
    Difference(
        "substr beyond the text", "substr", {"substr": ["a", 3]}, "a", "GENERAL",
        "the engine gives the whole text, or an error where the end is before the start",
        c.substr_leaves_text,
    ),
    Difference(
        "substr of what is no text, or from what is no number", "substr", {"substr": [True, 0]},
        "PARSE_ERROR", "GENERAL",
        "the core reads null, booleans and lists as JavaScript does",
        c.substr_operands,
    ),
    Difference(
        "substr without a start, or with four arguments", "substr", {"substr": ["a"]}, "PARSE_ERROR", "a",
        "an error to the engine; of four, it looks at two",
        lambda call: len(call.parts) not in {2, 3},
    ),
)  # fmt: skip
