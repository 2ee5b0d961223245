"""What a rule can return, by its text: lint knows the variants that a rule names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing
from evaluator.flags.outcomes import OutcomeReader, variant_named
from evaluator.targeting import RuleError, compile_rule
from evaluator.targeting.values import variant_name

CASES: dict[str, tuple[Any, list[Any], bool]] = {
    "if": ({"if": [{"var": "x"}, "a", "b"]}, ["a", "b"], False),
    "if without else": ({"if": [{"var": "x"}, "a"]}, ["a"], False),
    "if with several branches": ({"if": [True, "a", {"var": "x"}, "b", "c"]}, ["a", "b", "c"], False),
    "if of one": ({"if": ["a"]}, ["a"], False),
    "a condition is no outcome": ({"if": [{"==": [{"var": "x"}, "q"]}, "a"]}, ["a"], False),
    "nested": ({"if": [1, {"if": [{"var": "x"}, "a", "b"]}, None]}, ["a", "b"], False),
    "the other spelling of if": ({"?:": [{"var": "x"}, "a", "b"]}, ["a", "b"], False),
    "null": ({"if": [{"var": "x"}, None, None]}, [], False),
    "or": ({"or": [{"if": [{"var": "x"}, "a"]}, "b"]}, ["a", "b"], False),
    "or skips what is false": ({"or": [False, "", "b"]}, ["b"], False),
    "and": ({"and": ["x", "b"]}, ["b"], False),
    "and stops at what is false": ({"and": [False, "b"]}, [False, "b"], False),
    "and after a comparison": ({"and": [{">": [{"var": "x"}, 1]}, "b"]}, ["b"], True),
    "fractional": ({"fractional": [["a", 20], ["b", 80]]}, ["a", "b"], False),
    "fractional by a value": ({"fractional": [{"var": "x"}, ["a"], ["b", 0]]}, ["a", "b"], False),
    "a bucket with a rule": ({"fractional": [[{"if": [{"var": "x"}, "a", "b"]}, 1]]}, ["a", "b"], False),
    "a shared rule": ({"if": [1, {"$ref": "shared"}, "c"]}, ["a", "c"], False),
    "a shared rule of shared rules": ({"$ref": "outer"}, ["a"], False),
    "a shared rule that refers to itself": ({"$ref": "loop"}, [], True),
    "no such shared rule": ({"$ref": "none"}, [], True),
    "computed": ({"var": "x"}, [], True),
    "computed in a branch": ({"if": [1, {"cat": ["a", "b"]}, "c"]}, ["c"], True),
    "a list": ({"if": [1, ["a"]]}, [["a"]], False),
    "several operators": ({"a": 1, "b": 2}, [], True),
    "no list of arguments": ({"if": {"var": "x"}}, [], True),
}
EVALUATORS = {
    "shared": {"if": [{"var": "x"}, "a"]},
    "outer": {"or": [{"$ref": "shared"}, {"$ref": "shared"}]},
    "loop": {"if": [1, {"$ref": "loop"}]},
}


@pytest.mark.parametrize("case", CASES)
def test_literal_outcomes_are_found_and_conditions_are_not(case: str) -> None:
    rule, literals, computed = CASES[case]
    found = OutcomeReader(EVALUATORS).of(rule)
    values = [value for _, value in found.literals]
    assert list(dict.fromkeys(map(repr, values))) == list(map(repr, literals))
    assert found.computed is computed


def test_a_long_chain_of_shared_rules_is_followed_without_recursing_for_ever() -> None:
    chain: dict[str, Any] = {f"r{at}": {"if": [1, {"$ref": f"r{at + 1}"}, "a"]} for at in range(5_000)}
    assert OutcomeReader(chain).of({"$ref": "r0"}).computed


conditions = st.builds(lambda name: {"var": name}, st.sampled_from("xyz"))
literals = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", "<c>", "", 1.5, 1e22])
rules = st.recursive(
    literals,
    lambda inner: st.one_of(
        st.lists(st.one_of(conditions, inner), min_size=1, max_size=5).map(lambda parts: {"if": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(st.tuples(inner, st.integers(0, 3)).map(list), min_size=1, max_size=3).map(
            lambda buckets: {"fractional": [{"var": "id"}, *buckets]}
        ),
    ),
    max_leaves=8,
)
contexts = st.fixed_dictionaries({"id": st.sampled_from("abcdefgh")}, optional=dict.fromkeys("xyz", literals))


@settings(max_examples=300)
@given(rules, contexts)
def test_no_evaluation_gives_what_was_not_found(rule: Any, context: dict[str, Any]) -> None:
    found = OutcomeReader({}).of(rule)
    try:
        result = compile_rule(rule, bucketing=Bucketing.V2, flag_key="f")(context)
    except RuleError:
        return
    assert (
        result is None
        or found.computed
        or variant_name(result) in {variant_name(value) for _, value in found.literals}
    )


@given(literals | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53))
def test_a_literal_names_the_variant_that_evaluation_takes(literal: Any) -> None:
    named = variant_named(literal)
    if literal is not None and named is not None:
        assert named == variant_name(literal)


FLAG: dict[str, Any] = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def problems(targeting: Any, evaluators: Any = None, **fields: Any) -> list[tuple[str, str, str]]:
    top = {"flags": {"f": {**FLAG, "targeting": targeting, **fields}}, "$evaluators": evaluators or {}}
    return [
        (each.severity.value, each.path, each.message)
        for each in parse(json.dumps(top).encode(), file="a.json").problems
    ]


def test_an_outcome_that_is_no_variant_is_a_warning_at_its_place_with_a_suggestion() -> None:
    top = '{"flags": {"f": {"state": "ENABLED", "variants": {"on": 1, "off": 2}, "defaultVariant": "off",\n'
    top += '  "targeting": {"if": [{"var": "x"}, "onn", "off"]}}}}'
    parsed = parse(top.encode(), file="a.json")
    assert [str(each) for each in parsed.problems] == [
        'a.json:2:38: warning: `targeting` can return "onn", which is not a variant (did you mean "on"?); '
        'the variants are "on", "off"'
    ]
    assert parsed.warned == {"f"}
    assert "f" in parsed.flag_set.flags


def test_a_bucket_of_fractional_that_is_no_variant_is_a_warning() -> None:
    (found,) = problems({"fractional": [["on", 50], ["yy", 50]]})
    assert found[:2] == ("warning", "$.flags.f.targeting.fractional[1][0]")


def test_an_outcome_of_a_shared_rule_is_reported_where_the_flag_refers_to_it() -> None:
    (found,) = problems({"if": [True, {"$ref": "shared"}]}, {"shared": {"if": [{"var": "x"}, "blue"]}})
    assert found[1] == "$.flags.f.targeting.if[1].$ref"
    assert found[2].startswith('this shared rule can return "blue", which is not a variant')


@pytest.mark.parametrize(
    ("variants", "outcome"),
    [({"true": 1, "off": 2}, True), ({"1": "x", "off": "y"}, 1), ({"1": "x", "off": "y"}, 1.0)],
)
def test_booleans_and_numbers_name_variants_by_their_json_text(variants: Any, outcome: Any) -> None:
    assert problems({"if": [{"var": "x"}, outcome]}, variants=variants) == []


@pytest.mark.parametrize("outcome", [{"var": "plan"}, {"cat": ["o", "n"]}, None])
def test_computed_and_null_outcomes_are_left_alone(outcome: Any) -> None:
    assert problems({"if": [{"var": "x"}, outcome, "on"]}) == []


def notes(targeting: Any, **fields: Any) -> list[str]:
    top = {"flags": {"f": {**FLAG, "targeting": targeting, **fields}}}
    parsed = parse(json.dumps(top).encode(), file="a.json")
    assert not parsed.warned
    assert "f" in parsed.flag_set.flags
    return [f"{each.severity}: {each.path}" for each in parsed.notes]


def test_a_variant_that_nothing_can_reach_is_a_note() -> None:
    variants = {"on": True, "off": False, "spare": True}
    assert notes({"if": [{"var": "x"}, "on"]}, variants=variants) == ["note: $.flags.f.variants.spare"]


@pytest.mark.parametrize("targeting", [{"var": "x"}, {}, {"if": [{"var": "x"}, {"cat": ["on"]}]}])
def test_where_a_rule_may_reach_anything_or_there_is_none_no_variant_is_noted(targeting: Any) -> None:
    assert notes(targeting) == []


NEVER_DEFAULT: dict[str, Any] = {
    "an else branch": {"if": [{"var": "x"}, "a", "b"]},
    "several branches": {"if": [{"var": "x"}, "a", {"var": "y"}, "b", "a"]},
    "or with a variant at its end": {"or": [{"if": [{"var": "x"}, "a"]}, "b"]},
    "and of variants": {"and": ["a", "b"]},
    "a shared rule": {"if": [{"var": "x"}, "a", {"$ref": "whole"}]},
    "fractions by a text": {"fractional": [{"cat": [{"var": "id"}, "x"]}, ["a"], ["b"]]},
    "fractions by the flag's key": {
        "if": [{"var": "x"}, "a", {"fractional": [{"var": "$flagd.flagKey"}, ["b"]]}]
    },
}
PERHAPS_DEFAULT: dict[str, Any] = {
    "no rule": {},
    "no else branch": {"if": [{"var": "x"}, "a", {"var": "y"}, "b"]},
    "null": {"if": [{"var": "x"}, "a", None]},
    "the default itself": {"if": [{"var": "x"}, "a", "c"]},
    "a branch without else": {"if": [{"var": "x"}, "a", {"if": [{"var": "y"}, "b"]}]},
    "and of null": {"and": [None, "b"]},
    "or with null at its end": {"or": ["", None]},
    "a shared rule without else": {"$ref": "part"},
    "fractions by the targeting key": {"fractional": [["a", 50], ["b", 50]]},
    "fractions by what may be absent": {"fractional": [{"var": "id"}, ["a"], ["b"]]},
    "fractions without a weight": {"fractional": [{"cat": ["x"]}, ["a", 0]]},
    "fractions with a computed weight": {"fractional": [{"cat": ["x"]}, ["a", {"var": "w"}]]},
    "what is computed": {"if": [{"var": "x"}, "a", {"var": "y"}]},
}


def unreached_variants(rule: Any) -> list[str]:
    variants = {"a": 1, "b": 2, "c": 3}
    flag = {"state": "ENABLED", "variants": variants, "defaultVariant": "c", "targeting": rule}
    evaluators = {"whole": {"if": [{"var": "y"}, "a", "b"]}, "part": {"if": [{"var": "y"}, "a"]}}
    top = {"flags": {"f": flag}, "$evaluators": evaluators}
    parsed = parse(json.dumps(top).encode(), file="f.json")
    assert parsed.problems == ()
    return [note.path for note in parsed.notes if note.code == "unreached-default"]


@pytest.mark.parametrize("rule", NEVER_DEFAULT.values(), ids=NEVER_DEFAULT)
def test_a_default_that_no_branch_reaches_is_noted(rule: Any) -> None:
    assert unreached_variants(rule) == ["$.flags.f.defaultVariant"]


@pytest.mark.parametrize("rule", PERHAPS_DEFAULT.values(), ids=PERHAPS_DEFAULT)
def test_a_default_that_may_be_served_is_not_noted(rule: Any) -> None:
    assert unreached_variants(rule) == []
