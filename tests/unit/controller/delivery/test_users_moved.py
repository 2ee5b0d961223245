"""Users that a change moves, with the evaluator's own bucketing."""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.delivery.changed_flags import answers, movement, numbered_users
from evaluator.flags.model import Bucketing, Flag, FlagSet, State
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Sequence

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
