"""What a revision changed, in lines, and the users that it moves, by the evaluator's own bucketing."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.delivery.changed_flags import (
    MOST_LINES,
    Edit,
    answers,
    changed_flags,
    movement,
    numbered_users,
    rule_edits,
)
from evaluator.flags.diff import diff, same
from evaluator.flags.model import ABSENT, CONFIDENTIAL_KEY, Bucketing, Flag, FlagSet, Json, State
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAG = Flag("banner", State.ENABLED, {"plain": 1, "christmas": "ho"}, "plain")
RULE = {"if": [{"in": ["x" * 60, {"var": "country"}]}, "plain", "christmas"]}


def lines(before: FlagSet | None, after: FlagSet) -> tuple[str, ...]:
    return changed_flags(before, after, diff(before or FlagSet(), after))


def flag_set(*flags: Flag) -> FlagSet:
    return FlagSet({each.key: each for each in flags})


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ([], [FLAG], "+ banner: plain (1)"),
        ([], [replace(FLAG, default_variant=None)], "+ banner: no default"),
        ([FLAG], [], "- banner"),
        ([FLAG], [replace(FLAG, default_variant="christmas")],
         '~ banner: default plain (1) → christmas ("ho")'),
        ([FLAG], [replace(FLAG, state=State.DISABLED)], "~ banner: state ENABLED → DISABLED"),
        ([FLAG], [replace(FLAG, variants={"plain": True, "new": None})],
         '~ banner: variants plain: 1 → true, christmas: "ho" → none, new: none → null'),
        ([FLAG], [replace(FLAG, default_variant=None, targeting={"if": [True, "plain"]})],
         '~ banner: default plain (1) → no default; targeting none → {"if":[true,"plain"]}'),
        ([FLAG], [replace(FLAG, metadata={"owner": "ada"})], '~ banner: metadata owner: none → "ada"'),
    ],
)  # fmt: skip
def test_a_line_says_what_changed_of_a_flag(before: list[Flag], after: list[Flag], line: str) -> None:
    assert lines(flag_set(*before), flag_set(*after)) == (line,)


def test_without_a_set_before_all_flags_are_added() -> None:
    assert lines(None, flag_set(FLAG)) == ("+ banner: plain (1)",)


def test_many_lines_are_counted() -> None:
    many = flag_set(*(replace(FLAG, key=f"k{number:03}") for number in range(100)))
    found = lines(None, many)
    assert len(found) == MOST_LINES
    assert found[-1] == "… and 81 more"


def test_a_key_of_a_stranger_stays_within_its_line() -> None:
    (line,) = lines(None, flag_set(replace(FLAG, key="a\nb" + "x" * 1_000, default_variant="c\nd")))
    assert line.startswith("+ a bxxx")
    assert line.endswith("…: c d")


def test_a_value_is_short_and_stays_within_its_line() -> None:
    before, after = ({"plain": f"{letter}\n{'y' * 1_000}"} for letter in "ab")
    (line,) = lines(
        flag_set(replace(FLAG, variants=before, default_variant=None)),
        flag_set(replace(FLAG, variants=after, default_variant=None)),
    )
    one, other = line.removeprefix("~ banner: variants plain: ").split(" → ")
    assert (len(one), len(other)) == (64, 64)
    assert (one[:4], other[:4]) == ('"a\\n', '"b\\n')


def test_each_place_in_which_long_rules_differ_is_told() -> None:
    before = replace(FLAG, targeting=RULE)
    after = replace(FLAG, targeting={"if": [RULE["if"][0], "christmas", "plain"]})
    (line,) = lines(flag_set(before), flag_set(after))
    assert line == (
        '~ banner: targeting at 2 places: $.if[1]: "plain" → "christmas", $.if[2]: "christmas" → "plain"'
    )


def test_a_rule_that_changed_by_what_it_refers_to_says_so() -> None:
    flag = replace(FLAG, targeting={"$ref": "staff"})
    before, after = (FlagSet({"banner": flag}, evaluators={"staff": each}) for each in (True, False))
    assert lines(before, after) == ("~ banner: targeting, by a rule of $evaluators: true → false",)


def test_a_changed_domain_does_not_hide_a_changed_percentage() -> None:
    def rule(domain: str, share: int) -> Json:
        buckets = {"fractional": [["on", share], ["off", 100 - share]]}
        return {"if": [{"in": [domain, {"var": "email"}]}, "on", buckets]}

    before = replace(FLAG, targeting=rule("@example.com", 10))
    after = replace(FLAG, targeting=rule("@example.org", 50))
    (line,) = lines(flag_set(before), flag_set(after))
    assert line == (
        '~ banner: targeting at 3 places: $.if[0].in[0]: "@example.com" → "@example.org", '
        "$.if[2].fractional[0][1]: 10 → 50, $.if[2].fractional[1][1]: 90 → 50"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["if", "in", "var"]), inner, min_size=1, max_size=2)
    ),
    max_leaves=12,
)


def apply(rule: Any, edit: Edit) -> Any:
    if not edit.path:
        assert same(rule, edit.before)
        return edit.after
    inner = rule
    for step in edit.path[:-1]:
        inner = inner[step]
    last: Any = edit.path[-1]
    if edit.before is ABSENT:
        inner.insert(last, edit.after)
        return rule
    assert same(inner[last], edit.before)
    if edit.after is ABSENT:
        del inner[last]
    else:
        inner[last] = edit.after
    return rule


@given(JSON, JSON)
def test_what_is_told_of_a_rule_makes_the_new_one_of_the_old(before: Any, after: Any) -> None:
    made = copy.deepcopy(before)
    for edit in rule_edits(before, after):
        made = apply(made, edit)
    assert same(made, after)


@given(JSON, JSON, JSON)
def test_equal_parts_are_not_told(first: Any, before: Any, after: Any) -> None:
    edits = [*rule_edits({"if": [first, before]}, {"if": [first, after]})]
    assert bool(edits) is not same(before, after)
    assert all(edit.path[:2] == ("if", 1) for edit in edits)


def test_of_a_flag_with_a_value_of_a_secret_there_are_digests() -> None:
    hidden = replace(FLAG, variants={"plain": "hush"}, metadata={CONFIDENTIAL_KEY: True})
    for before, after in ((FLAG, hidden), (hidden, FLAG)):
        (line,) = lines(flag_set(before), flag_set(after))
        assert line.startswith("~ banner: secret sha256:")
        assert "hush" not in line
    (line,) = lines(None, flag_set(hidden))
    assert line.startswith("+ banner: secret sha256:")


USERS = 20_000
CONTEXTS = tuple(numbered_users(USERS))
VARIANTS = st.lists(st.sampled_from(["a", "b", "c", "(DISABLED)"]), max_size=60)


def split(*weights: tuple[str, int], bucketing: Bucketing = Bucketing.V2) -> list[str]:
    """What each user gets of a flag whose rule is `fractional` with these weights."""
    rule: Any = {"fractional": [[name, weight] for name, weight in weights]}
    flag = Flag("pay", State.ENABLED, MappingProxyType({"a": 1, "b": 2, "c": 3}), "a", rule)
    compiled = compile_flag_set(FlagSet(MappingProxyType({"pay": flag})), bucketing=bucketing)
    return answers(compiled, "pay", CONTEXTS, 0)


def percents_moved(before: Sequence[str], after: Sequence[str]) -> tuple[float, float]:
    """Percent of users who moved, and who had to."""
    found = movement(before, after)
    return found.moved * 100 / USERS, found.needed * 100 / USERS


@given(VARIANTS, VARIANTS)
def test_no_change_moves_fewer_users_than_it_needs_to(one: list[str], other: list[str]) -> None:
    size = min(len(one), len(other))
    before, after = one[:size], other[:size]
    there, back = movement(before, after), movement(after, before)
    assert there == back
    assert 0 <= there.needed <= there.moved <= there.users == size
    names = {*before, *after}
    distance = sum(abs(before.count(name) - after.count(name)) for name in names) / 2
    assert there.needed == distance


@given(st.lists(st.integers(1, 99), min_size=2, max_size=6, unique=True))
@settings(deadline=None, max_examples=10)
def test_a_split_in_two_that_grows_moves_nobody_back(weights: list[int]) -> None:
    grown = [split(("b", weight), ("a", 100 - weight)) for weight in sorted(weights)]
    for before, after in pairwise(grown):
        assert all(late == "b" for early, late in zip(before, after, strict=True) if early == "b")
        assert movement(before, after).moved == movement(before, after).needed


def test_another_order_of_variants_moves_users_without_need() -> None:
    assert percents_moved(split(("a", 50), ("b", 50)), split(("b", 50), ("a", 50))) == pytest.approx(
        (100, 0), abs=1.5
    )
    assert percents_moved(split(("a", 90), ("b", 10)), split(("b", 10), ("a", 90))) == pytest.approx(
        (20, 0), abs=1.5
    )


def test_a_third_variant_that_takes_from_the_first_moves_twice_what_it_needs_to() -> None:
    before = split(("a", 50), ("b", 50))
    appended = movement(before, split(("a", 40), ("b", 50), ("c", 10)))
    assert (appended.moved / USERS, appended.needed / USERS) == pytest.approx((0.2, 0.1), abs=0.01)


def test_another_generation_of_bucketing_moves_half_of_an_even_split() -> None:
    halves = [split(("a", 50), ("b", 50), bucketing=generation) for generation in Bucketing]
    assert percents_moved(*halves) == pytest.approx((50, 0), abs=1.5)


def test_a_flag_without_a_variant_answers_with_its_reason() -> None:
    flag = Flag("pay", State.DISABLED, MappingProxyType({"a": 1}))
    compiled = compile_flag_set(FlagSet(MappingProxyType({"pay": flag})))
    assert answers(compiled, "pay", [{}], 0) == ["(DISABLED)"]
    assert answers(compiled, "other", [{}], 0) == ["(FLAG_NOT_FOUND)"]
