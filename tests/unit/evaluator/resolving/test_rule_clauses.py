"""Rules in words, and the shares of users that their buckets give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.model import ABSENT, Flag, FlagSet, State
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.resolving.rule_words import Split, clauses, sentence, splits
from evaluator.targeting.compile import OPERATORS

EMAIL = {"var": "email"}
EMPLOYEE = {"ends_with": [EMAIL, "@example.com"]}
TENTH = {"fractional": [["on", 10], ["off", 90]]}
NOT_BETA = {"!": {"in": ["beta", {"var": "roles"}]}}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (ABSENT, ""),
        ({}, ""),
        ({"if": [EMPLOYEE, "on", TENTH]},
         "for users whose email ends with @example.com: on; else on for 10 % and off for 90 %, by user"),
        ({"if": [{"in": [{"var": "tier"}, ["gold", "big spender"]]}, "many"]},
         'for users whose tier is gold or "big spender": many; else the default'),
        ({"if": [{"and": [EMPLOYEE, NOT_BETA]}, "on", "off"]},
         "for users whose email ends with @example.com and roles does not contain beta: on; else off"),
        ({"if": [{"!": {"or": [EMPLOYEE, {"==": [1, {"var": "age"}]}]}}, "on"]},
         "for users whose email does not end with @example.com and age is not 1: on; else the default"),
        ({"if": [{"or": [{"and": [{"var": "a"}, {"var": "b"}]}, {"missing": ["c"]}]}, "on"]},
         "for users whose (a is set and b is set) or c is missing: on; else the default"),
        ({"if": [{"sem_ver": [{"var": "version"}, ">=", "2.4.0"]}, "new"]},
         "for users whose version is at least version 2.4.0: new; else the default"),
        ({"if": [{"<": [{"var": "$flagd.timestamp"}, 1796000000]}, "early", "late"]},
         "if the time is before 2026-11-30 00:53 UTC: early; else late"),
        ({"if": [{"<": [18, {"var": "age"}, 65]}, "on"]},
         "for users whose age is between 18 and 65: on; else the default"),
        ({"if": [{"$ref": "is-employee"}, "on"]}, "if is-employee: on; else the default"),
        ({"==": [{"var": "plan"}, "free"]}, "for users whose plan is free: true; else false"),
        ({"var": "plan"}, "the variant that plan names"),
        ({"fractional": [{"cat": [{"var": "$flagd.flagKey"}, EMAIL]}, ["red", 1], ["blue", 2]]},
         "red for 33.3 % and blue for 66.7 %, by email"),
        ({"if": [EMPLOYEE, {"if": [{"var": "beta"}, "b"]}, "c"]},
         "for users whose email ends with @example.com and beta is set: b; "
         "for users whose email ends with @example.com: the default; else c"),
    ],
)  # fmt: skip
def test_a_rule_in_words(rule: Any, words: str) -> None:
    assert sentence(clauses(rule)) == words


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("on")
_RULES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*OPERATORS, "$ref", "?"]), inner | st.lists(inner, max_size=4), max_size=2
        )
    ),
    max_leaves=30,
)


@given(_RULES)
def test_words_are_found_for_any_rule_and_stay_short(rule: Any) -> None:
    listed = clauses(rule)
    assert listed
    assert len(sentence(listed)) < 100_000


@given(
    st.lists(st.tuples(st.sampled_from(["on", "off", "blue"]), st.integers(0, 200)), min_size=1, max_size=6)
)
def test_shares_cover_all_buckets_once_and_agree_with_what_users_get(weights: list[tuple[str, int]]) -> None:
    rule = {"fractional": [[variant, weight] for variant, weight in weights]}
    if not sum(weight for _, weight in weights):
        assert splits(rule) == ()
        return
    (split,) = splits(rule)
    assert [split.shares[0].first, split.shares[-1].end] == [0, split.total]
    assert all(one.end == next_.first for one, next_ in zip(split.shares, split.shares[1:], strict=False))
    assert sum(map(split.percent, split.shares)) == pytest.approx(100)
    check_users(rule, split)


def check_users(rule: Any, split: Split) -> None:
    flag = Flag("flag", State.ENABLED, {"on": 1, "off": 2, "blue": 3}, "off", rule)
    compiled = compile_flag_set(FlagSet({"flag": flag}))
    for user in ("ada", "bob", "eve"):
        buckets: list[int] = []

        def trace(path: Any, name: str, value: Any, more: Any, buckets: list[int] = buckets) -> None:
            assert (path, name) == (split.path, "fractional")
            buckets.append(more["bucket"])

        resolution = resolve(compiled, "flag", None, {"targetingKey": user}, 0, trace)
        share = next(share for share in split.shares if share.first <= buckets[0] < share.end)
        assert share.variant == resolution.variant
