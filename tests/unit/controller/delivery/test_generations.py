"""What is said of the generation of `fractional` of a set in a rollout."""

from __future__ import annotations

import pytest

from controller.delivery.rollouts import change_text, drawn_text, generation_of, pending_text
from evaluator.flags.model import BUCKETING_KEY, Flag, FlagSet, State

SPLIT = {"fractional": [["on", 50], ["off", 50]]}


def a_set(generation: str | None, rule: object = SPLIT) -> FlagSet:
    flag = Flag("f", State.ENABLED, {"on": 1, "off": 0}, "off", rule)
    return FlagSet({"f": flag}, metadata={} if generation is None else {BUCKETING_KEY: generation})


def test_a_change_names_how_many_sample_users_it_moves() -> None:
    moved = int(change_text(a_set("v3"), "v2", "v3").split()[4])
    assert 100 < moved < 200
    assert change_text(a_set("v3", "on"), "v2", "v3").startswith("from v2 to v3: 0 of 300 ")
    assert change_text(a_set("v2"), None, "v2") == ""
    assert generation_of(a_set("v9")) is None


def test_a_change_that_is_served_waits_for_nothing() -> None:
    assert pending_text(a_set("v3"), a_set("v3")) == ""
    assert pending_text(a_set("v3"), a_set(None)).startswith("The change of bucketing from v2 to v3: ")


@pytest.mark.parametrize(
    ("generation", "unknown_followers", "text"),
    [
        ("v2", False, ""),
        (None, False, "Users are drawn by bucketing v2, which is assumed as the set pins none"),
        ("v3", True, "Users are drawn by bucketing v3; followers without receipts, such as in-process "
                     "providers, may draw them by another"),
    ],
)  # fmt: skip
def test_the_generation_is_said_where_not_all_followers_are_known_to_agree(
    generation: str | None, unknown_followers: bool, text: str
) -> None:
    assert drawn_text(generation, unknown_followers=unknown_followers) == text
