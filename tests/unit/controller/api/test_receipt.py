"""How members are written into a FlagReceipt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.receipt import (
    FlagReceiptStatus,
    ServedGroup,
    entry,
    member_id,
    pack,
    receipt_name,
    unpack,
)
from controller.delivery.members import count

ENTRIES = st.lists(st.tuples(st.binary(min_size=6, max_size=6), st.integers(0, 2**48 - 1)))


@given(ENTRIES)
def test_a_list_is_read_as_it_was_written(entries: list[tuple[bytes, int]]) -> None:
    assert list(unpack(pack(entry(*each) for each in entries))) == sorted(entries)


@given(ENTRIES)
def test_a_member_takes_sixteen_characters(entries: list[tuple[bytes, int]]) -> None:
    assert len(pack(entry(*each) for each in entries)) == 16 * len(entries)


@pytest.mark.parametrize("text", ["AAAA", "?", "ÄÄÄÄ"])
def test_a_list_that_is_none_is_refused_and_counts_for_nothing(text: str) -> None:
    with pytest.raises(ValueError, match=r"members are|ASCII"):
        list(unpack(text))
    assert count([FlagReceiptStatus(groups=(ServedGroup(members=text),))], "").total == 0


def test_a_pod_is_one_member_whatever_runs_in_it() -> None:
    assert member_id("shop", "uid", "a") == member_id("shop", "uid", "b")
    assert member_id("", "", "a") != member_id("", "", "b")


@pytest.mark.parametrize(
    ("one", "other"), [(("a", "b.c"), ("a.b", "c")), (("x" * 253, "p"), ("x" * 252, "p"))]
)
def test_each_pair_has_a_name_of_its_own(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert receipt_name(*one) != receipt_name(*other)
    assert len(receipt_name(*one)) <= 253
