"""What is around the rule, and what a rule comes to."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import Difference

FLAG = (
    Difference(
        "null as targeting", "flag", None, "DEFAULT", "STATIC",
        "flagd: targeting that is there is evaluated, null too; the core takes any false value for none",
        lambda call: not call.raw.get("targeting", 1) and call.raw["targeting"] != {},
    ),
    Difference(
        "targeting that is no object", "flag", "a", "a", "PARSE_ERROR",
        "flagd's engine evaluates any JSON value to itself; the core refuses what is no object",
        lambda call: bool(call.raw.get("targeting")) and not isinstance(call.raw["targeting"], dict),
    ),
    Difference(
        "a fraction asked for as an integer", "flag", {"if": [True, "half"]}, "half", "TYPE_MISMATCH",
        "flagd truncates; the core wants Python's int",
        lambda call: call.scope == "integer" and isinstance(c.chosen_value(call), float),
        wanted="integer", variants={"half": 0.5},
    ),
    Difference(
        "a boolean asked for as a float", "flag", {"if": [True, "yes"]}, "TYPE_MISMATCH", "yes",
        "no number to flagd; Python's True is 1",
        lambda call: call.scope == "float" and isinstance(c.chosen_value(call), bool),
        wanted="float", variants={"yes": True},
    ),
    Difference(
        "a list asked for as an object", "flag", {"if": [True, "list"]}, "TYPE_MISMATCH", "list",
        "a list is no value that flagd's schema or its object type has; the core lets it pass",
        lambda call: call.scope == "object" and isinstance(c.chosen_value(call), list),
        wanted="object", variants={"list": [1]},
    ),
    Difference(
        "a number as the rule's outcome", "flag", {"+": ["1", 0]}, "1", "GENERAL",
        "flagd names the variant by the number's JSON, 1; the core by Python's text, 1.0",
        c.number_named_apart,
    ),
    Difference(
        "a text that JSON escapes as the rule's outcome", "flag", {"if": [True, '"a"']}, "GENERAL", '"a"',
        "flagd goes through JSON text and drops the quotes; the core takes the text as it is",
        c.odd_variant_text,
        variants={'"a"': ""},
    ),
    Difference(
        "an empty text as the rule's outcome", "flag", {"if": [True, ""]}, "", "GENERAL",
        "the core has no variant of that name, even if there is one",
        lambda call: call.parts == [""] and "" in call.raw["variants"],
        variants={"": "empty"},
    ),
)  # fmt: skip
