from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.flags.known_operators import DEPTH, NODES, OPERATORS, Arity, shorten
from evaluator.flags.problems import Finding, Severity
from evaluator.flags.rules import check_rule
from evaluator.flags.suggestions import MOST_SEARCHES, Suggestions, did_you_mean
from tests.beyond_schema import OF_RULES


def check(rule: Any, *names: str) -> list[Finding]:
    return check_rule(rule, evaluators={name: {"var": "a"} for name in names})


def codes(rule: Any, *names: str) -> list[str]:
    return [problem.code for problem in check(rule, *names)]


GOOD: dict[str, Any] = {
    "nothing": {},
    "equality": {"==": [{"var": "tier"}, "gold"]},
    "negation without a list": {"!": {"var": "tier"}},
    "negation of one": {"!!": [{"var": "tier"}]},
    "comparison of three": {"<": [1, {"var": "age"}, 9]},
    "if with one argument": {"if": [True]},
    "var with a default": {"var": ["tier", "none"]},
    "var of everything": {"var": ""},
    "var by index": {"var": 1},
    "var with a computed name": {"var": {"cat": ["a", "b"]}},
    "flagd's clock": {"var": "$flagd.timestamp"},
    "flagd's key in a list": {"var": ["$flagd.flagKey"]},
    "missing": {"missing": ["a", "b"]},
    "missing some": {"missing_some": [1, ["a", "b"]]},
    "reference": {"if": [{"$ref": "shared"}, "on"]},
    "versions": {"sem_ver": [{"var": "v"}, "^", "1.2.3-rc.1+build.5"]},
    "prefix": {"starts_with": [{"var": "email"}, "a"]},
    "buckets": {"fractional": [["on", 1], ["off", 3]]},
    "buckets by something": {"fractional": [{"var": "id"}, ["on", 1], ["off"]]},
    "whole float weight": {"fractional": [["on", 25.0]]},
    "computed weight": {"fractional": [["on", {"var": "share"}], ["off", 0]]},
    "reduce": {"reduce": [{"var": "xs"}, {"+": [{"var": "current"}, {"var": "accumulator"}]}, 0]},
    "array of literals": {"in": [{"var": "tier"}, ["gold", "silver"]]},
}


@pytest.mark.parametrize("rule", GOOD.values(), ids=GOOD)
def test_a_good_rule_has_no_problem(rule: Any) -> None:
    assert check(rule, "shared") == []


BAD: dict[str, tuple[Any, str, tuple[str | int, ...]]] = {
    "text": ("on", "not-a-rule", ()),
    "null": (None, "not-a-rule", ()),
    "list": ([1], "not-a-rule", ()),
    "unknown": ({"iff": [1, 2]}, "unknown-operator", ("iff",)),
    "unknown without a name": ({"": [1]}, "unknown-operator", ("",)),
    "unlisted": ({"abs": [-1]}, "unlisted-operator", ("abs",)),
    "one operand": ({"==": [1]}, "wrong-arity", ("==",)),
    "three operands": ({">": [3, 2, 1]}, "wrong-arity", (">",)),
    "no list": ({"and": True}, "wrong-arity", ("and",)),
    "no operands": ({"cat": []}, "wrong-arity", ("cat",)),
    "negation of two": ({"!": [1, 2]}, "wrong-arity", ("!",)),
    "product of one": ({"*": [2]}, "wrong-arity", ("*",)),
    "var of three": ({"var": ["a", 1, 2]}, "wrong-arity", ("var",)),
    "var of a boolean": ({"var": True}, "bad-argument", ("var",)),
    "var of a list in a list": ({"var": [["a"]]}, "bad-argument", ("var", 0)),
    "flagd variable": ({"var": "$flagd.now"}, "bad-flagd-variable", ("var",)),
    "flagd variable, listed": ({"var": ["$flagd.now"]}, "bad-flagd-variable", ("var", 0)),
    "missing without list": ({"missing": "a"}, "bad-argument", ("missing",)),
    "missing a number": ({"missing": ["a", 1]}, "bad-argument", ("missing", 1)),
    "missing some, no number": ({"missing_some": ["1", ["a"]]}, "bad-argument", ("missing_some", 0)),
    "missing some, no list": ({"missing_some": [1, "a"]}, "bad-argument", ("missing_some", 1)),
    "missing some, arity": ({"missing_some": [1]}, "wrong-arity", ("missing_some",)),
    "prefix number": ({"starts_with": ["a", 0]}, "bad-argument", ("starts_with", 1)),
    "suffix null": ({"ends_with": [None, "a"]}, "bad-argument", ("ends_with", 0)),
    "prefix of one": ({"starts_with": ["a"]}, "wrong-arity", ("starts_with",)),
    "version operator": ({"sem_ver": ["1.2.0", "==", "1.2.0"]}, "bad-argument", ("sem_ver", 1)),
    "version operator list": ({"sem_ver": ["1.2.0", [], "1.2.0"]}, "bad-argument", ("sem_ver", 1)),
    "versions, arity": ({"sem_ver": ["1.2.0", "="]}, "wrong-arity", ("sem_ver",)),
    "bucketing text": ({"fractional": ["id", ["on", 1]]}, "bad-bucket", ("fractional", 0)),
    "bucketing null": ({"fractional": [None, ["on", 1]]}, "bad-bucket", ("fractional", 0)),
    "no bucket": ({"fractional": [{"var": "id"}]}, "bad-bucket", ("fractional",)),
    "empty fractional": ({"fractional": []}, "wrong-arity", ("fractional",)),
    "empty bucket": ({"fractional": [[]]}, "bad-bucket", ("fractional", 0)),
    "bucket of three": ({"fractional": [["on", 1, 2]]}, "bad-bucket", ("fractional", 0)),
    "bucket of text": ({"fractional": [["on", 1], "off"]}, "bad-bucket", ("fractional", 1)),
    "fraction of a weight": ({"fractional": [["on", 0.5]]}, "bad-weight", ("fractional", 0, 1)),
    "negative weight": ({"fractional": [["on", -1]]}, "bad-weight", ("fractional", 0, 1)),
    "text weight": ({"fractional": [["on", "1"]]}, "bad-weight", ("fractional", 0, 1)),
    "boolean weight": ({"fractional": [["on", True]]}, "bad-weight", ("fractional", 0, 1)),
    "null weight": ({"fractional": [["on", None]]}, "bad-weight", ("fractional", 0, 1)),
    "infinite weight": ({"fractional": [["on", 1e400]]}, "bad-weight", ("fractional", 0, 1)),
    "too much weight": (
        {"fractional": [["on", 2_147_483_647], ["off", 1]]}, "weight-too-large", ("fractional",),
    ),
    "several": ({"==": [1, 1], "!=": [1, 1]}, "several-operators", ()),
    "empty argument": ({"!": [{}]}, "empty-rule", ("!", 0)),
    "dangling reference": ({"!": {"$ref": "other"}}, "unknown-reference", ("!", "$ref")),
    "reference to a number": ({"!": {"$ref": 1}}, "bad-argument", ("!", "$ref")),
    "inside an array literal": ({"in": ["a", [{"lower": "A"}]]}, "unknown-operator", ("in", 1, 0, "lower")),
}  # fmt: skip


SHARED = {"$ref": "shared"}
NOTED: dict[str, tuple[Any, str, tuple[str | int, ...]]] = {
    "prefix reference": ({"starts_with": [SHARED, "a"]}, "reference-position", ("starts_with", 0, "$ref")),
    "bucketing reference": (
        {"fractional": [SHARED, ["on", 1]]}, "reference-position", ("fractional", 0, "$ref"),
    ),
    "reference as weight": (
        {"fractional": [["on", SHARED]]}, "reference-position", ("fractional", 0, 1, "$ref"),
    ),
    "whole reference": (SHARED, "reference-position", ("$ref",)),
    "version in two parts": ({"sem_ver": ["1.2", "=", "1.2.0"]}, "lax-version", ("sem_ver", 0)),
    "version in one part": ({"sem_ver": [{"var": "v"}, "<", "2"]}, "lax-version", ("sem_ver", 2)),
    "version with v": ({"sem_ver": [{"var": "v"}, "=", "v1.2.0"]}, "lax-version", ("sem_ver", 2)),
    "version as a number": ({"sem_ver": [{"var": "v"}, ">=", 1.2]}, "lax-version", ("sem_ver", 2)),
    "version by a rule": ({"sem_ver": [{"cat": ["1.2.", 0]}, "=", "1.2.0"]}, "lax-version", ("sem_ver", 0)),
    "version by reference": ({"sem_ver": [SHARED, "=", "1.2.0"]}, "lax-version", ("sem_ver", 0)),
    "sum as seed": ({"fractional": [{"+": [{"var": "id"}, 1]}, ["on"]]}, "numeric-seed", ("fractional", 0)),
    "remainder as seed": (
        {"fractional": [{"%": [{"var": "id"}, 9]}, ["on"]]}, "numeric-seed", ("fractional", 0),
    ),
    "clock as seed": (
        {"fractional": [{"var": "$flagd.timestamp"}, ["on"]]}, "numeric-seed", ("fractional", 0),
    ),
    "clock with a default as seed": (
        {"fractional": [{"var": ["$flagd.timestamp"]}, ["on"]]}, "numeric-seed", ("fractional", 0),
    ),
    "numbers by branch as seed": (
        {"fractional": [{"if": [{"var": "a"}, 1, {"-": [{"var": "b"}]}]}, ["on"]]}, "numeric-seed",
        ("fractional", 0),
    ),
    "largest number as seed": (
        {"fractional": [{"max": [{"var": "id"}, 9]}, ["on"]]}, "numeric-seed", ("fractional", 0),
    ),
    "reduced numbers as seed": (
        {"fractional": [{"reduce": [{"var": "x"}, {"+": [{"var": "current"}, 1]}, 0]}, ["on"]]},
        "numeric-seed", ("fractional", 0),
    ),
    "comparison as seed": (
        {"fractional": [{"==": [{"var": "a"}, 1]}, ["on"]]}, "numeric-seed", ("fractional", 0),
    ),
    "list in a text": ({"in": [["a", "b"], {"var": "tier"}]}, "list-needle", ("in", 0)),
    "list in a list": ({"in": [["a"], ["a", "b"]]}, "list-needle", ("in", 0)),
    "list with a rule": ({"in": [[{"var": "a"}], {"var": "tiers"}]}, "list-needle", ("in", 0)),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "code", "path"), NOTED.values(), ids=NOTED)
def test_a_rule_that_does_what_it_says_or_cannot_has_one_note(
    rule: Any, code: str, path: tuple[str | int, ...]
) -> None:
    assert [(each.code, each.path, each.severity) for each in check(rule, "shared")] == [
        (code, path, Severity.NOTE)
    ]


TEXT_SEEDS: dict[str, Any] = {
    "variable": {"var": "id"},
    "joined text": {"cat": [{"+": [{"var": "id"}, 1]}]},
    "text in one branch": {"if": [{"var": "a"}, 1, "x"]},
    "nothing in one branch": {"if": [{"var": "a"}, 1]},
    "several operators": {"or": [{"var": "id"}, 1]},
    "reduced": {"reduce": [{"var": "xs"}, {"var": "current"}, 0]},
}


@pytest.mark.parametrize("seed", TEXT_SEEDS.values(), ids=TEXT_SEEDS)
def test_a_seed_that_may_be_text_or_absent_has_no_note(seed: Any) -> None:
    assert check({"fractional": [seed, ["on"]]}) == []


SEED_BY_NAME = {"fractional": [{"$ref": "n"}, ["on"]]}


def test_a_seed_by_reference_is_judged_by_what_it_refers_to() -> None:
    rule = {"fractional": [{"if": [True, {"$ref": "n"}, 2]}, ["on"]]}
    assert [each.code for each in check_rule(rule, evaluators={"n": {"*": [{"var": "a"}, 2]}})] == [
        "numeric-seed"
    ]
    assert [each.code for each in check_rule(SEED_BY_NAME, evaluators={"n": {"+": [1, 2]}})] == [
        "reference-position",
        "numeric-seed",
    ]
    doubled: dict[str, Any] = {f"e{at}": {"or": [{"$ref": f"e{at + 1}"}] * 2} for at in range(40)}
    assert check_rule({"fractional": [{"or": [{"$ref": "e0"}]}, ["on"]]}, evaluators=doubled) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("=>", ">="), ("=<", "<="), ("=", "=="), ("AND", "and"), ("&&", "and"), ("||", "or"), ("Or", "or"),
        ("not", "!"), ("NOT", "!"), ("<>", "!="), ("neq", "!="), ("eq", "=="), ("gt", ">"), ("NUM_GTE", ">="),
        ("lte", "<="), ("concat", "cat"), ("====", "==="), ("!===", "!=="), ("every", "all"),
        ("startsWith", "starts_with"), ("semver", "sem_ver"), ("isOneOf", "in"), ("mod", "%"), ("iff", "if"),
        ("vra", "var"), ("redcue", "reduce"), ("fractionl", "fractional"), ("$Ref", "$ref"),
    ],
)  # fmt: skip
def test_a_habit_or_a_slip_is_answered_by_the_operator_of_the_same_meaning(written: str, meant: str) -> None:
    assert Suggestions().operator_hint(written) == f' (did you mean "{meant}"?)'


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ("substring", "START, LENGTH"), ("!<", '{"!": {"<": […]}}'),
        ("regex", "no regular expressions"), ("Matches", "no regular expressions"),
        ("contains", '{"in": [PART'), ("!in", '{"!": {"in"'), ("not_in", '{"!": {"in"'),
        ("doesNotStartWith", '{"!": {"starts_with"'),
        ("notContains", "negate it"), ("fractionalEvaluation", "divided anew"),
        ("any", '"or" for conditions'),
        ("nor", '{"!": {"or"'), ("xor", '{"!=": ['), ("now", "$flagd.timestamp"),
        ("toLowerCase", "ignore case"),
        ("semver_gt", '{"sem_ver"'), ("equalsIgnoreCase", "ignore case"), ("exists", "null"),
        ("len", "no length"),
    ],
)  # fmt: skip
def test_an_operator_without_an_equal_is_answered_in_words(written: str, part: str) -> None:
    assert "did you mean" not in Suggestions().operator_hint(written)
    assert part in Suggestions().operator_hint(written)


@pytest.mark.parametrize("name", ["mid", "one", "sone", "", "==!", "cat2", "foo", "x" * 100])
def test_a_name_near_to_another_meaning_or_to_none_has_no_suggestion(name: str) -> None:
    assert Suggestions().operator_hint(name) == ""


@pytest.mark.parametrize(
    ("written", "meant"), [("==", "="), ("=>", ">="), ("<>", "!="), ("!==", "!="), ("~>", "~"), ("GTE", ">=")]
)
def test_a_comparison_of_versions_is_suggested_by_its_meaning(written: str, meant: str) -> None:
    (problem,) = check({"sem_ver": [{"var": "v"}, written, "1.2.0"]})
    assert f'did you mean "{meant}"?' in problem.message


@pytest.mark.parametrize(("rule", "code", "path"), BAD.values(), ids=BAD)
def test_a_bad_rule_has_one_warning_with_its_place(rule: Any, code: str, path: tuple[str | int, ...]) -> None:
    assert [(each.code, each.path, each.severity) for each in check(rule, "shared")] == [
        (code, path, Severity.WARNING)
    ]


def test_problems_come_in_document_order() -> None:
    rule = {"if": [{"a": [{"b": 1}]}, {"==": [{"c": 1}]}, {"d": 1}]}
    assert [each.path[-1] for each in check(rule)] == ["a", "b", "==", "c", "d"]


def test_an_object_with_several_operators_is_not_examined() -> None:
    assert codes({"!": [{"a": [{"bogus": 1}], "b": 1}]}) == ["several-operators"]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"fractionnal": []}, 'did you mean "fractional"?'),
        ({"!": {"$ref": "staf"}}, 'did you mean "staff"?'),
        ({"var": "$flagd.timestmp"}, 'did you mean "$flagd.timestamp"?'),
        ({"and": True}, "takes a list of at least 1 arguments, not true"),
        ({"<": [1]}, "takes 2 to 3 arguments, not 1"),
    ],
    ids=["operator", "reference", "variable", "no list", "arity"],
)
def test_a_message_says_what_to_do(rule: Any, text: str) -> None:
    assert text in check(rule, "staff")[0].message


def test_only_the_first_unknown_names_cost_a_search_for_near_ones() -> None:
    problems = check({"and": [{"$ref": "shard"} for _ in range(MOST_SEARCHES + 2)]}, "shared")
    suggested = ["did you mean" in problem.message for problem in problems]
    assert suggested == [True] * MOST_SEARCHES + [False] * 2


def test_a_very_long_name_is_neither_searched_for_nor_shown_whole() -> None:
    assert did_you_mean("v" * 100_000, ["v" * 100_001]) == ""
    assert len(check({"v" * 100_000: []})[0].message) < 100


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (1, "1"), ("a", '"a"'), ({"a": 1}, "an object"), ([], "an array"),
        (16**5000, "a huge number"),
    ],
    ids=["null", "boolean", "number", "text", "object", "array", "huge"],
)  # fmt: skip
def test_a_message_shows_values_as_json_has_them(value: Any, text: str) -> None:
    assert shorten(value) == text


def nest(levels: int) -> Any:
    rule: Any = {"var": "a"}
    for _ in range(levels - 1):
        rule = {"!": [rule]}
    return rule


def test_a_rule_may_be_as_deep_as_the_bound_and_not_deeper() -> None:
    assert check(nest(DEPTH)) == []
    (problem,) = check(nest(DEPTH + 1))
    assert (problem.code, problem.severity) == ("rule-too-deep", Severity.ERROR)
    assert problem.path == ("!", 0) * DEPTH


def test_arrays_in_arrays_count_as_levels() -> None:
    arrays: Any = 1
    for _ in range(DEPTH):
        arrays = [arrays]
    assert codes({"merge": arrays}) == []
    assert codes({"merge": [arrays]}) == ["rule-too-deep"]


def test_a_rule_may_be_as_large_as_the_bound_and_not_larger() -> None:
    assert check({"+": [1] * (NODES - 2)}) == []
    (problem,) = check({"+": [1] * (NODES - 1)})
    assert (problem.code, problem.severity) == ("rule-too-large", Severity.ERROR)


def test_a_rule_of_any_depth_is_one_error() -> None:
    assert codes(nest(100_000)) == ["rule-too-deep"]


def test_every_operator_says_how_many_arguments_it_takes() -> None:
    assert all(arity.least >= 0 and str(arity) for arity in OPERATORS.values())
    assert [Arity(2, 3).admits(count) for count in range(1, 5)] == [False, True, True, False]


def test_what_goes_beyond_the_schema_has_a_reason() -> None:
    assert all(len(reason) > 20 for reason in OF_RULES.values())


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.sampled_from([*OPERATORS, "$ref", "bogus"]) | st.text(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=20,
)


@settings(max_examples=300)
@given(values)
def test_no_json_value_makes_the_check_fail(rule: Any) -> None:
    for problem in check(rule):
        value = rule
        for step in problem.path:
            value = value[step]
        assert problem.message


def test_a_bucket_of_four_parts_is_told_so() -> None:
    (problem,) = check({"fractional": [["control", 50, "treatment", 50]]})
    assert problem.message == 'a bucket is ["variant", weight], not one of 4 parts'
