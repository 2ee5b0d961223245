"""Notes on parts of rules that cannot do what they seem to."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flagsets.constant_parts import CONSTANT, UNREACHED, constant_parts
from evaluator.flags.known_operators import shorten
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge
from evaluator.flags.model import Bucketing
from evaluator.targeting import RuleError, compile_rule

TIER: Final = {"==": [{"var": "tier"}, "gold"]}
NOW: Final = {"var": "$flagd.timestamp"}
OFTEN: Final = {"fractional": [["on", 10], ["off", 90]]}


def notes(rule: Any, evaluators: Any = None) -> list[tuple[str, str]]:
    flag = {"state": "ENABLED", "variants": {"on": 1, "off": 2}, "defaultVariant": "off", "targeting": rule}
    text = json.dumps({"flags": {"a": flag}, "$evaluators": evaluators or {}})
    layers = [read_layer([("a.json", text.encode())])]
    found = constant_parts(layers, merge(layers).flag_set)
    assert all(problem.severity == "note" and problem.line for problem in found)
    return [(problem.code, problem.path.removeprefix("$.flags.a.targeting")) for problem in found]


IDLE: Final[dict[str, tuple[Any, str, str]]] = {
    "weights all 0": ({"fractional": [["on", 0], ["off", 0]]}, CONSTANT, ""),
    "one variant in both buckets": ({"fractional": [["on", 10], ["on", 90]]}, CONSTANT, ".fractional"),
    "an empty list": ({"if": [{"in": [{"var": "x"}, []]}, "on", "off"]}, CONSTANT, ""),
    "an empty list beside more": ({"or": [TIER, {"in": [{"var": "x"}, []]}]}, CONSTANT, ".or[1]"),
    "some of an empty list": (
        {"if": [{"and": [TIER, {"some": [[], TIER]}]}, "on", OFTEN]}, CONSTANT, ".if[0].and[1]",
    ),
    "a comparison of literals": ({"if": [TIER, "on", {"==": [1, 2]}, "off"]}, CONSTANT, ".if[2]"),
    "time and date": ({"if": [{">": [NOW, "2025-01-01"]}, "on", {"var": "x"}]}, CONSTANT, ".if[0]"),
    "text and number": ({"if": [{"===": [{"cat": [{"var": "x"}]}, 1]}, OFTEN, TIER]}, CONSTANT, ".if[0]"),
    "a boolean and its name": ({"if": [{"==": [{"!": [TIER]}, "true"]}, "on", OFTEN]}, CONSTANT, ".if[0]"),
    "one result of both branches": ({"if": [TIER, "on", "on"]}, CONSTANT, ""),
    "a branch after true": ({"if": [TIER, "off", True, "on", "off"]}, UNREACHED, ".if[4]"),
    "a branch of false": ({"if": [False, OFTEN, TIER, "on"]}, UNREACHED, ".if[1]"),
    "a condition twice": ({"if": [TIER, "on", dict(TIER), "off"]}, UNREACHED, ".if[2]"),
    "not of a literal": ({"if": [TIER, "on", {"!": [True]}, "off"]}, CONSTANT, ".if[2]"),
    "true of a shared rule": ({"if": [{"$ref": "e"}, OFTEN, "off"]}, UNREACHED, ".if[2]"),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "code", "path"), IDLE.values(), ids=IDLE)
def test_a_part_that_cannot_do_what_it_seems_to_has_one_note(rule: Any, code: str, path: str) -> None:
    shared = {"e": True} if "$ref" in json.dumps(rule) else None
    told = notes(rule, shared)
    assert [(code, place) for code, place in told if code in (CONSTANT, UNREACHED)][:1] == [(code, path)]
    assert len(told) <= 2


@pytest.mark.parametrize(
    "rule",
    [
        {"if": [TIER, "on", "off"]},
        {"if": [TIER, "on", {"in": [{"var": "x"}, ["a", "b"]]}, OFTEN]},
        {"fractional": [{"var": "x"}, ["on", 0], ["off", 100]]},
        {"fractional": [["on", 10], ["off", 80], ["on", 10]]},
        {"if": [{">": [NOW, 1_700_000_000]}, "on", "off"]},
        {"if": [{"and": [True, TIER]}, "on"]},
        {"if": [{"==": [{"var": "x"}, []]}, "on"]},
        {"if": [{"$ref": "e"}, "on", "off"]},
        {"map": [{"var": "x"}, {"var": ""}]},
    ],
)
def test_a_part_that_depends_on_the_context_has_none(rule: Any) -> None:
    assert notes(rule, {"e": {"if": [TIER, True, {"$ref": "e"}]}}) == []


def test_what_is_wrong_in_a_shared_rule_is_told_there() -> None:
    shared = {"e": {"or": [TIER, {"in": ["x", []]}]}}
    assert notes({"if": [{"$ref": "e"}, "on"]}, shared) == [(CONSTANT, "$.$evaluators.e.or[1]")]


RULES: Final[st.SearchStrategy[Any]] = st.recursive(
    st.sampled_from([True, False, None, 0, 1, "", "on", "off", [], {"var": "x"}, {"var": "y"}]),
    lambda inner: st.builds(
        lambda operator, arguments: {operator: arguments},
        st.sampled_from(["if", "and", "or", "!", "!!", "==", "!=", "===", "<", "in", "cat", "fractional"]),
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=10,
)


@given(RULES, st.fixed_dictionaries({"x": st.sampled_from([None, 1, "on", [], True]), "y": st.just("off")}))
def test_what_is_said_to_be_for_everybody_is_what_the_engine_gives(rule: Any, context: Any) -> None:
    def given_by(rule: Any) -> Any:
        try:
            return compile_rule(rule, bucketing=Bucketing.V2, flag_key="a")(context)
        except RuleError:
            return RuleError

    layers = [read_layer([("a.json", json.dumps({"flags": {}, "$evaluators": {"e": rule}}).encode())])]
    for problem in constant_parts(layers, merge(layers).flag_set):
        if problem.code == CONSTANT and problem.path == "$.$evaluators.e":
            value = given_by(rule)
            assert value is RuleError or f"gives everybody {shorten(value)};" in problem.message


def test_a_long_rule_is_read_in_one_pass() -> None:
    def took(count: int) -> float:
        rule: Any = "off"
        branches = [part for at in range(count) for part in ({"==": [{"var": "x"}, at]}, "on")]
        start = time.process_time()
        assert notes({"if": [*branches, rule]}) == []
        return time.process_time() - start

    took(100)
    assert took(8_000) < 40 * max(took(1_000), 0.01)
