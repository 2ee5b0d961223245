"""Few places, many who want one, and some who never give it back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.host.shares import FairShare, Usage, usage_by_resource


def take_until_full(shares: FairShare[str], group: str, wanted: int) -> list[str]:
    """What a group gets that wants so many."""
    for number in range(wanted):
        shares.add(group, f"{group}{number}")
    return take_all(shares)


def take_all(shares: FairShare[str]) -> list[str]:
    found = []
    while (item := shares.take()) is not None:
        found.append(item)
    return found


@pytest.mark.parametrize(
    ("places", "gets"), [(1, [1]), (2, [1, 1]), (3, [2, 1]), (16, [8, 4, 2, 1, 1, 0]), (64, [32])]
)
def test_each_that_comes_gets_half_of_what_the_others_left(places: int, gets: list[int]) -> None:
    shares: FairShare[str] = FairShare(places)
    assert [len(take_until_full(shares, group, 99)) for group in "abcdef"[: len(gets)]] == gets


def test_who_has_none_finds_one_where_those_before_keep_all() -> None:
    shares: FairShare[str] = FairShare(4, 3)
    assert [len(take_until_full(shares, group, 99)) for group in "abc"] == [2, 1, 1]
    assert [len(take_until_full(shares, group, 1)) for group in "defg"] == [1, 1, 1, 0]
    shares.release("d")
    assert take_all(shares) == ["g0"]
    # What is beyond the places is not for those who have one.
    for group in "efg":
        shares.release(group)
    assert take_all(shares) == []


def test_without_want_of_places_everybody_has_one() -> None:
    assert len(take_until_full(FairShare(float("inf")), "a", 500)) == 500


def test_groups_take_turns_and_their_items_keep_their_order() -> None:
    shares: FairShare[str] = FairShare(12)
    for group, number in [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]:
        shares.add(group, f"{group}{number}")
    assert take_all(shares) == ["a0", "b0", "c0", "a1", "b1", "a2"]


def test_a_group_that_has_many_gives_way_as_it_gives_back() -> None:
    shares: FairShare[str] = FairShare(8)
    assert len(take_until_full(shares, "a", 99)) == 4
    assert len(take_until_full(shares, "b", 99)) == 2
    shares.release("a")
    assert take_all(shares) == ["b2"]
    shares.release("a")
    assert take_all(shares) == ["a4"]


def test_what_waits_no_more_gets_nothing() -> None:
    shares: FairShare[str] = FairShare(9)
    shares.add("a", "a0")
    shares.add("a", "a1")
    shares.add("a", "a1")
    for item in ("a0", "a0", "never"):
        shares.remove("a", item)
    shares.remove("b", "b0")
    assert take_all(shares) == ["a1"]


class Looked:
    """A group that knows how often anybody asked for it."""

    def __init__(self) -> None:
        self.looks = 0

    def __hash__(self) -> int:
        self.looks += 1
        return 1


def test_without_a_free_place_no_waiting_key_is_examined() -> None:
    shares: FairShare[str] = FairShare(1)
    shares.add("a", "a0")
    take_all(shares)
    group = Looked()
    shares.add(group, "b0")
    before = group.looks
    assert shares.take() is None
    assert group.looks == before


steps = st.lists(st.tuples(st.sampled_from(["add", "take", "done"]), st.sampled_from("abcde")), max_size=120)


@settings(max_examples=100)
@given(st.integers(1, 20), steps)
def test_no_group_ever_has_more_than_its_share_and_all_are_served_in_the_end(
    places: int, steps: list[tuple[str, str]]
) -> None:
    shares: FairShare[str] = FairShare(places)
    has, wanted, given_out = Counter[str](), list[str](), list[str]()
    for number, (step, group) in enumerate(steps):
        if step == "add":
            wanted.append(f"{group}{number}")
            shares.add(group, wanted[-1])
        elif step == "done" and has[group]:
            has[group] -= 1
            shares.release(group)
        elif step == "take" and (item := shares.take()) is not None:
            given_out.append(item)
            has[item[0]] += 1
            assert has[item[0]] <= places - (has.total() - 1)
            assert has.total() <= places
    # A key that is done makes way: nobody is left, and nobody came twice.
    while has.total() or len(given_out) < len(wanted):
        for group in [each for each in has if has[each]][:1]:
            has[group] -= 1
            shares.release(group)
        more = take_all(shares)
        assert more or has.total() or len(given_out) == len(wanted)
        given_out += more
        has.update(each[0] for each in more)
    assert sorted(given_out) == sorted(wanted)


@settings(max_examples=50)
@given(st.integers(1, 16), st.integers(1, 40))
def test_one_that_comes_last_waits_only_for_those_before_it(places: int, groups: int) -> None:
    shares: FairShare[str] = FairShare(places)
    out = [item for number in range(groups) for item in take_until_full(shares, f"{number}-", 50)]
    shares.add("last", "last")
    for _ in range(places + groups + 1):
        found = take_all(shares)
        if "last" in found:
            return
        out += found
        shares.release(out.pop(0).partition("-")[0] + "-")
    pytest.fail("it still waits")


def test_one_group_may_have_half_of_what_waits_and_each_other_one_something() -> None:
    shares: FairShare[str] = FairShare(0, most_waiting=8)
    waiting = Counter[str]()
    for group in ("a", "b", "c", "d", "e", "f", "g"):
        for number in range(20):
            if not shares.is_full(group):
                shares.add(group, f"{group}{number}")
                waiting[group] += 1
    assert waiting == {"a": 4, "b": 2, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}


@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=200), st.integers(1, 12))
def test_what_waits_is_bounded_whoever_comes(groups: list[str], most: int) -> None:
    shares: FairShare[str] = FairShare(0, most_waiting=most)
    for number, group in enumerate(groups):
        if not shares.is_full(group):
            shares.add(group, f"{number}")
    assert shares.waiting <= 2 * most


def test_a_group_is_given_places_at_once_up_to_its_share() -> None:
    shares: FairShare[str] = FairShare(8, 2)
    given_out = Counter[str]()
    for group in "abcdefgh":
        while shares.has_place(group):
            shares.hold(group)
            given_out[group] += 1
    assert given_out == {"a": 4, "b": 2, "c": 1, "d": 1, "e": 1, "f": 1}
    shares.release("a")
    assert not shares.has_place("a")


def test_the_usage_of_what_has_a_name_is_summed_by_it() -> None:
    shares: list[FairShare[str]] = [FairShare(1, resource="test of usage") for _ in range(2)]
    for share in shares:
        for item in ("a1", "a2", "b1"):
            share.add(item[0], item)
        assert share.take() == "a1"
    assert usage_by_resource()["test of usage"] == Usage(held=2, waiting=4, groups=4)
    shares[0].remove("b", "b1")
    assert usage_by_resource()["test of usage"] == Usage(held=2, waiting=3, groups=3)
