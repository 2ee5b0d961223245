"""`var`, `missing`, `missing_some`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import CRASH, Difference

VARIABLES = (
    Difference(
        "a path that leads into a text or past a list's numbers", "var", {"var": "a.length"}, "x", "2",
        "the core indexes texts and knows `length`, the engine indexes lists by whatever the part reads as",
        c.goes_into_text_or_list,
        context={"a": ["x", "y"]},
    ),
    Difference(
        "a variable's name that is no text", "var", {"var": [1]}, "PARSE_ERROR", "DEFAULT",
        "the engine takes text, the core anything",
        c.odd_name,
    ),
    Difference(
        "a path with an empty part", "var", {"var": ".a"}, "x", "DEFAULT",
        "the engine skips it",
        c.has_empty_part,
        context={"a": "x"},
    ),
    Difference(
        "var with three arguments", "var", {"var": ["a", "x", "y"]}, "DEFAULT", CRASH + "TypeError",
        "the engine drops the default, the core crashes",
        lambda call: len(call.parts) > 2,
    ),
    Difference(
        "an empty text, missing", "missing missing_some", {"if": [{"missing": ["a"]}, "true", "false"]},
        "false", "true",
        "only null is missing to the engine",
        c.blank_is_missed,
        context={"a": ""},
    ),
    Difference(
        "missing names that are no plain names", "missing missing_some",
        {"if": [{"missing": [["a", "b"]]}, "true", "false"]}, "false", "true",
        "as for `var`; and the core unpacks a list within the list",
        c.odd_names,
        context={"a": 1},
    ),
    Difference(
        "missing_some of no whole number", "missing_some",
        {"if": [{"missing_some": [1.5, ["a", "b"]]}, "true", "false"]}, "false", "true",
        "the engine truncates the number and wants both arguments",
        c.odd_count,
        context={"a": 1},
    ),
)  # fmt: skip
