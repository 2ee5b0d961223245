"""`filter`, `map`, `reduce`, `all`, `some`, `none`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import FIRST, Difference

LOOPED = (
    Difference(
        "a loop over what is no list", "filter map reduce all some none", {"some": [FIRST, {"==": [1, 1]}]},
        "PARSE_ERROR", "false",
        "an error to the engine; the core takes it for an empty list",
        c.loop_over_no_list,
        context={"a": "text"},
    ),
    Difference(
        "a loop over a literal list with rules in it", "filter map reduce all some none",
        {"some": [[FIRST], {"==": [{"var": ""}, "x"]}]}, "false", "true",
        "the engine does not evaluate its elements",
        c.rules_in_literal,
        context={"a": "x"},
    ),
    Difference(
        "a loop's variable that the outer value knows too", "filter some none",
        {"some": [{"var": "b"}, {"==": [FIRST, "x"]}]}, "true", "false",
        "the engine substitutes the outer value's into the condition before it looks at elements",
        c.outer_value_is_read,
        context={"a": "x", "b": [{"a": "y"}]},
    ),
    Difference(
        "a list or an object that a condition reads", "all some none filter",
        {"all": [{"var": "b"}, {"!!": [FIRST]}]}, "PARSE_ERROR", "true",
        "the engine substitutes it, and would run it as a rule, which is refused here",
        c.element_object_is_read,
        context={"b": [{"a": {"k": 1}}]},
    ),
    Difference(
        "a loop within the condition of all", "all",
        {"all": [{"var": "b"}, {"some": [{"var": "c"}, {"==": [FIRST, "x"]}]}]}, "true", "false",
        "the outer element's values are substituted into the inner condition too",
        c.loop_within,
        context={"b": [{"a": "x", "c": [{"a": "y"}]}]},
    ),
    Difference(
        "a condition that is no rule", "all some none", {"some": [[1], True]}, "PARSE_ERROR", "true",
        "an error to the engine, and so is a variable alone, once it is substituted",
        c.odd_condition,
    ),
    Difference(
        "a loop with too few arguments", "filter map reduce all some none",
        {"reduce": [[1], {"var": "current"}]}, "0", "1",
        "an empty list or 0 to the engine, an error where `all`, `some` or `none` have a list to go through",
        lambda call: c.bare(call) or len(call.raw) < (3 if call.name == "reduce" else 2),
    ),
    Difference(
        "reduce of nothing", "reduce", {"reduce": [FIRST, {"var": "current"}, 5]}, "0", "5",
        "0 to the engine, the first value to the core",
        lambda call: not isinstance(call.parts[0] if call.parts else None, list),
    ),
    Difference(
        "reduce from what is no boolean, number or text", "reduce",
        {"reduce": [[1], {"var": "current"}, None]}, "PARSE_ERROR", "1",
        "the engine has no other accumulators and evaluates a rule there; the core takes it as written",
        c.odd_start,
    ),
    Difference(
        "reduce whose steps change the accumulator's kind", "reduce",
        {"reduce": [[5], {"var": "current"}, True]}, "true", "5",
        "the engine converts each to the kind it started as",
        c.accumulator_changes_kind,
    ),
    Difference(
        "reduce over null", "reduce", {"reduce": [[1, None], {"var": "current"}, 0]}, "1", "DEFAULT",
        "the engine skips it",
        lambda call: bool(call.parts) and isinstance(call.parts[0], list) and None in call.parts[0],
    ),
)  # fmt: skip
