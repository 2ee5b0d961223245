"""What is around the rule, and what a rule comes to."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import Difference

FLAG = (
    Difference(
        "null as targeting",
        "flag",
        lambda call: not call.raw.get("targeting", 1) and call.raw["targeting"] != {},
        "flagd: targeting that is there is evaluated, null too; the core takes any false value for none",
        None,
        "DEFAULT",
        "STATIC",
    ),
    Difference(
        "targeting that is no object",
        "flag",
        lambda call: bool(call.raw.get("targeting")) and not isinstance(call.raw["targeting"], dict),
        "flagd's engine evaluates any JSON value to itself; the core refuses what is no object",
        "a",
        "a",
        "PARSE_ERROR",
    ),
    Difference(
        "a fraction asked for as an integer",
        "flag",
        lambda call: call.scope == "integer" and isinstance(c.chosen_value(call), float),
        "flagd truncates; the core wants Python's int",
        {"if": [True, "half"]},
        "half",
        "TYPE_MISMATCH",
        wanted="integer",
        variants={"half": 0.5},
    ),
    Difference(
        "a boolean asked for as a float",
        "flag",
        lambda call: call.scope == "float" and isinstance(c.chosen_value(call), bool),
        "no number to flagd; Python's True is 1",
        {"if": [True, "yes"]},
        "TYPE_MISMATCH",
        "yes",
        wanted="float",
        variants={"yes": True},
    ),
    Difference(
        "a list asked for as an object",
        "flag",
        lambda call: call.scope == "object" and isinstance(c.chosen_value(call), list),
        "a list is no value that flagd's schema or its object type has; the core lets it pass",
        {"if": [True, "list"]},
        "TYPE_MISMATCH",
        "list",
        wanted="object",
        variants={"list": [1]},
    ),
    Difference(
        "a number as the rule's outcome",
        "flag",
        c.number_named_apart,
        "flagd names the variant by the number's JSON, 1; the core by Python's text, 1.0",
        {"+": ["1", 0]},
        "1",
        "GENERAL",
    ),
    Difference(
        "a text that JSON escapes as the rule's outcome",
        "flag",
        c.odd_variant_text,
        "flagd goes through JSON text and drops the quotes; the core takes the text as it is",
        {"if": [True, '"a"']},
        "GENERAL",
        '"a"',
        variants={'"a"': ""},
    ),
    Difference(
        "an empty text as the rule's outcome",
        "flag",
        lambda call: call.parts == [""] and "" in call.raw["variants"],
        "the core has no variant of that name, even if there is one",
        {"if": [True, ""]},
        "",
        "GENERAL",
        variants={"": "empty"},
    ),
)
