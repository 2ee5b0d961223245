"""`var`, `missing`, `missing_some`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import CRASH, Difference

VARIABLES = (
    Difference(
        "a path that leads into a text or past a list's numbers",
        "var",
        c.goes_into_text_or_list,
        "the core indexes texts and knows `length`, the engine indexes lists by whatever the part reads as",
        {"var": "a.length"},
        "x",
        "2",
        {"a": ["x", "y"]},
    ),
    Difference(
        "a variable's name that is no text",
        "var",
        c.odd_name,
        "the engine takes text, the core anything",
        {"var": [1]},
        "PARSE_ERROR",
        "DEFAULT",
    ),
    Difference(
        "a path with an empty part",
        "var",
        c.has_empty_part,
        "the engine skips it",
        {"var": ".a"},
        "x",
        "DEFAULT",
        {"a": "x"},
    ),
    Difference(
        "var with three arguments",
        "var",
        lambda call: len(call.parts) > 2,
        "the engine drops the default, the core crashes",
        {"var": ["a", "x", "y"]},
        "DEFAULT",
        CRASH + "TypeError",
    ),
    Difference(
        "an empty text, missing",
        "missing missing_some",
        c.blank_is_missed,
        "only null is missing to the engine",
        {"if": [{"missing": ["a"]}, "true", "false"]},
        "false",
        "true",
        {"a": ""},
    ),
    Difference(
        "missing names that are no plain names",
        "missing missing_some",
        c.odd_names,
        "as for `var`; and the core unpacks a list within the list",
        {"if": [{"missing": [["a", "b"]]}, "true", "false"]},
        "false",
        "true",
        {"a": 1},
    ),
    Difference(
        "missing_some of no whole number",
        "missing_some",
        c.odd_count,
        "the engine truncates the number and wants both arguments",
        {"if": [{"missing_some": [1.5, ["a", "b"]]}, "true", "false"]},
        "false",
        "true",
        {"a": 1},
    ),
)
