"""Tests of flags are run by the rules that serve, and shares of users are computed where that can be."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import accumulate
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.authoring.flag_test_files import read_flag_tests
from controller.authoring.flag_test_runs import TestReport, run_flag_tests
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge
from evaluator.flags.model import Bucketing, FlagSet
from evaluator.resolving.resolve import compile_flag_set, resolve

SHARED = {"is-gold": {"==": [{"var": "tier"}, "gold"]}}


def flags(targeting: Any = None, **fields: Any) -> FlagSet:
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        **({} if targeting is None else {"targeting": targeting}),
        **fields,
    }
    text = yaml.safe_dump({"flags": {"f": flag}, "$evaluators": SHARED}, sort_keys=False)
    return merge([read_layer([("f.yaml", text.encode())])]).flag_set


def report_of(flag_set: FlagSet, *tests: dict[str, Any], **options: Any) -> TestReport:
    named = [{"name": str(index), "flag": "f", **test} for index, test in enumerate(tests)]
    for test in named:
        if "evaluator" in test:
            del test["flag"]
    text = yaml.safe_dump({"tests": named})
    read = read_flag_tests([[("f.flagtest.yaml", text.encode())]])
    assert read.problems == ()
    return run_flag_tests(flag_set, read.cases, **options)


def failure(flag_set: FlagSet, test: dict[str, Any]) -> str:
    (outcome,) = report_of(flag_set, test).outcomes
    assert not outcome.passed
    return outcome.message


TENTH = {"fractional": [["on", 10], ["off", 90]]}
GOLD = {"if": [{"$ref": "is-gold"}, "on", TENTH]}


@pytest.mark.parametrize(
    ("targeting", "test"),
    [
        (None, {"expect": {"variant": "off", "value": False, "reason": "STATIC", "errorCode": None}}),
        (GOLD, {"context": {"tier": "gold"}, "expect": {"variant": "on", "reason": "TARGETING_MATCH"}}),
        (GOLD, {"context": {"tier": "basic"}, "at": 9.99, "expect": {"value": True}}),
        (GOLD, {"context": {"tier": "basic"}, "at": 10, "expect": {"value": False}}),
        (GOLD, {"context": {"tier": "basic"}, "at": 0, "expect": {"value": True}}),
        (GOLD, {"distribution": {"on": 10, "off": 90}}),
        (GOLD, {"context": {"tier": "gold"}, "distribution": {"on": 100}}),
        (GOLD, {"evaluator": "is-gold", "context": {"tier": "gold"}, "expect": {"value": True}}),
        ("nowhere", {"expect": {"errorCode": "GENERAL", "reason": "ERROR", "variant": None}}),
        (None, {"type": "string", "expect": {"errorCode": "TYPE_MISMATCH"}}),
        (None, {"flag": "other", "missing": True}),
        (None, {"flag": "other", "expect": {"errorCode": "FLAG_NOT_FOUND"}}),
        (
            {"if": [{">=": [{"var": "$flagd.timestamp"}, 1_798_113_600]}, "on"]},
            {"time": "2026-12-24T12:00:00Z", "expect": {"value": True}},
        ),
    ],
)
def test_a_test_passes_where_what_it_expects_comes(targeting: Any, test: dict[str, Any]) -> None:
    (outcome,) = report_of(flags(targeting), test).outcomes
    assert (outcome.passed, outcome.trace) == (True, ()), outcome.message


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            {"expect": {"variant": "on"}},
            'the test "0" fails: expected variant "on"; came variant "off", value false, reason STATIC',
        ),
        ({"expect": {"value": 0}}, "expected value 0; came"),
        ({"expect": {"metadata": {"owner": "shop"}}}, 'expected metadata {"owner": "shop"}; came'),
        ({"missing": True}, 'expected no flag "f"; came a flag of that key'),
        ({"flag": "fa", "expect": {"value": True}}, "came no flag of that key"),
        ({"flag": "g", "distribution": {"on": 1}}, "came no flag of that key"),
        ({"evaluator": "is-glod", "expect": {"value": True}}, 'of that name (did you mean "is-gold"?)'),
        ({"distribution": {"on": "10 ± 1"}}, "expected on 10 ± 1 %; came off 100 % (exactly)"),
    ],
)
def test_a_failure_says_what_was_expected_and_what_came(test: dict[str, Any], message: str) -> None:
    assert message in failure(flags(), test)


def test_a_failure_has_the_trace_of_the_rule() -> None:
    test = {"context": {"tier": "basic"}, "at": 42, "expect": {"value": True}}
    (outcome,) = report_of(flags(GOLD), test).outcomes
    assert [*outcome.trace] == [
        'targeting.if[0].==[0].var: "tier" is "basic"',
        "targeting.if[0].==: false",
        'targeting.if[2].fractional: "off", bucket 42 of 100 (set by the test)',
        'targeting.if: "off"',
        'flag: TARGETING_MATCH: the default variant, "off"',
    ]


def test_a_rule_that_reads_the_time_needs_one_in_its_test() -> None:
    rule = {"if": [{">": [{"var": "$flagd.timestamp"}, 1]}, "on"]}
    for test in ({"expect": {"value": True}}, {"distribution": {"on": 0}}):
        assert "reads $flagd.timestamp: give the test a `time`" in failure(flags(rule), test)


def test_metadata_is_expected_in_part_and_null_is_none() -> None:
    flag_set = flags(metadata={"owner": "shop", "jira": "S-1"})
    (outcome,) = report_of(flag_set, {"expect": {"metadata": {"owner": "shop", "expires": None}}}).outcomes
    assert outcome.passed


def test_tests_of_held_flags_do_not_run() -> None:
    report = report_of(flags(), {"expect": {"value": True}}, skip={"f"})
    assert (report.outcomes[0].skipped, report.failures) == (True, ())


def test_all_tests_together_do_bounded_work() -> None:
    report = report_of(flags(GOLD), *[{"expect": {"value": False}}] * 3, most_work=3)
    assert "all tests together take too much work" in report.outcomes[-1].message


def test_a_rule_that_reads_what_it_hashes_is_asked_with_keys() -> None:
    beta = {"ends_with": [{"var": "targetingKey"}, "7"]}
    (outcome,) = report_of(flags({"if": [beta, "on", TENTH]}), {"distribution": {"on": "19 ± 1"}}).outcomes
    assert outcome.passed, outcome.message
    assert outcome.came.endswith("(of 10,000 keys)")


SPLITS = st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any)


def split(weights: list[int], first: Any = None, names: str = "abcd") -> Any:
    entries = [[name, weight] for name, weight in zip(names, weights, strict=False)]
    return {"fractional": entries if first is None else [first, *entries]}


@settings(max_examples=30, deadline=None)
@given(
    outer=SPLITS, inner=SPLITS, bucketing=st.sampled_from(Bucketing), source=st.sampled_from(["", "org.id"])
)
def test_a_computed_share_is_that_of_many_users(
    outer: list[int], inner: list[int], bucketing: Bucketing, source: str
) -> None:
    first = {"cat": [{"var": "$flagd.flagKey"}, {"var": source}]} if source else None
    rule = {"if": [{"==": [split(outer, first), "a"]}, split(inner, first), "d"]}
    flag_set = flags(rule, variants=dict.fromkeys("abcd", 1), defaultVariant="d")
    compiled = compile_flag_set(flag_set, bucketing=bucketing)
    users = 5_000
    counted = Counter(
        resolve(compiled, "f", None, {"org": {"id": f"u{user}"}, "targetingKey": f"u{user}"}, 0).variant
        for user in range(users)
    )
    for name in "abcd":
        share = float(Fraction(100 * counted[name], users))
        tests = {"distribution": {name: f"{share:.2f} ± 4"}}
        (outcome,) = report_of(flag_set, tests, bucketing=bucketing).outcomes
        assert outcome.came.endswith("(exactly)")
        assert outcome.passed, outcome.message


@given(weights=SPLITS, at=st.integers(0, 9_999))
def test_a_position_is_in_the_bucket_that_owns_it(weights: list[int], at: int) -> None:
    position = Fraction(at * sum(weights), 10_000)
    ends = [*accumulate(weights)]
    wanted = next(name for name, end in zip("abcd", ends, strict=False) if position < end)
    flag_set = flags(split(weights), variants=dict.fromkeys("abcd", 1), defaultVariant="d")
    (outcome,) = report_of(flag_set, {"at": at / 100, "expect": {"variant": wanted}}).outcomes
    assert outcome.passed, outcome.message
