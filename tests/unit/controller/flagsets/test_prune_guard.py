"""Which revisions are held because they remove many flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.flagsets.compose import bulk_removal
from evaluator.flags.merge import parse

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet


def flags(*keys: str) -> FlagSet:
    body = ",".join(
        f'"{key}": {{"state": "ENABLED", "variants": {{"on": true}}, "defaultVariant": "on"}}' for key in keys
    )
    return parse(f'{{"flags": {{{body}}}}}'.encode(), file="flags.json").flag_set


def numbered_flags(first: int, last: int) -> FlagSet:
    return flags(*(f"flag-{number:03}" for number in range(first, last)))


@pytest.mark.parametrize(
    ("before", "after", "removed"),
    [
        pytest.param(numbered_flags(0, 20), numbered_flags(0, 20), 0, id="nothing removed"),
        pytest.param(numbered_flags(0, 20), numbered_flags(5, 20), 0, id="exactly a quarter"),
        pytest.param(numbered_flags(0, 20), numbered_flags(6, 20), 6, id="more than a quarter"),
        pytest.param(numbered_flags(0, 5), numbered_flags(4, 5), 0, id="most of a small set, but only four"),
        pytest.param(numbered_flags(0, 6), numbered_flags(5, 6), 5, id="five of six"),
        pytest.param(numbered_flags(0, 1), numbered_flags(0, 0), 1, id="the only flag"),
        pytest.param(numbered_flags(0, 3), numbered_flags(3, 9), 3, id="all flags, replaced by others"),
        pytest.param(numbered_flags(0, 0), numbered_flags(0, 0), 0, id="there were none"),
        pytest.param(None, numbered_flags(0, 5), 0, id="nothing was served before"),
    ],
)
def test_removing_all_flags_or_a_quarter_and_at_least_five_is_a_bulk_removal(
    before: FlagSet | None, after: FlagSet, removed: int
) -> None:
    found = bulk_removal(before, after)
    assert (len(found.keys) if found else 0) == removed


def test_the_message_names_the_first_five_flags_on_one_line() -> None:
    found = bulk_removal(numbered_flags(0, 10), numbered_flags(9, 10))
    assert str(found) == "removes 9 of 10 flags: flag-000, flag-001, flag-002, flag-003, flag-004, …"
    assert str(bulk_removal(flags("only"), flags())) == "removes the only flag: only"
    long = bulk_removal(flags("a\\nb" + "x" * 100), flags())
    assert "\n" not in str(long)
    assert len(str(long)) < 100
