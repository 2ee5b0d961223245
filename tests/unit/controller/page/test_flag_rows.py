"""Which flags the list shows, and in which order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from controller.page.flag_facts import rollout_sentences
from controller.page.flag_rows import FlagFilter, select_flags
from controller.page.page_source import FlagChange
from evaluator.flags.model import Flag, FlagSet, State
from tests.unit.controller.page.page_world import NOW, flag, shown_set

RULE = {"if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "on"]}
SET = shown_set(
    {
        "banner": flag(on=True, metadata={"owner": "web", "description": "The text above all pages"}),
        "cart": flag(state="DISABLED", metadata={"team": "checkout"}),
        "checkout": flag(targeting=RULE, metadata={"owner": "checkout"}),
    },
    last_changes={
        "banner": FlagChange("1" * 40, at=NOW - timedelta(days=3)),
        "checkout": FlagChange("2" * 40, at=NOW - timedelta(minutes=5)),
    },
    in_force={"banner": "off for all, by incident-7"},
)


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ({}, ["banner", "cart", "checkout"]),
        ({"q": " BANN "}, ["banner"]),
        ({"q": "above all"}, ["banner"]),
        ({"q": "checkout"}, ["cart", "checkout"]),
        ({"q": "@example.com"}, ["checkout"]),
        ({"state": "disabled"}, ["cart"]),
        ({"state": "rules"}, ["checkout"]),
        ({"state": "overridden"}, ["banner"]),
        ({"state": "held"}, []),
        ({"owner": "checkout"}, ["cart", "checkout"]),
        ({"since": "1h"}, ["checkout"]),
        ({"since": "7d"}, ["banner", "checkout"]),
        ({"sort": "changed"}, ["checkout", "banner", "cart"]),
        ({"q": "cart", "owner": "web"}, []),
        ({"state": "?", "since": "1y", "sort": "?", "page": "x"}, ["banner", "cart", "checkout"]),
    ],
)
def test_the_filter_selects(query: dict[str, str], keys: list[str]) -> None:
    selection = select_flags(SET, FlagFilter.of(query), NOW)
    assert ([row.key for row in selection.rows], selection.selected) == (keys, len(keys))


def test_fifty_flags_make_a_page_and_a_page_beyond_the_last_is_the_last() -> None:
    many = shown_set({f"flag-{number:03}": flag() for number in range(120)})
    second = select_flags(many, FlagFilter.of({"page": "2"}), NOW)
    assert (second.page, second.pages, second.rows[0].key, len(second.rows)) == (2, 3, "flag-050", 50)
    assert select_flags(many, FlagFilter.of({"page": "99999"}), NOW).page == 3


def test_a_flag_in_a_rollout_says_how_far_it_is() -> None:
    marks = {"flagstaff.dev/rollout": "checkout", "flagstaff.dev/rollout-share": "10"}
    flags = {
        "a": Flag("a", State.ENABLED, {"on": True}, "on", metadata=marks),
        "b": Flag("b", State.ENABLED, {"on": True}),
    }
    words = "in rollout checkout, 10 % of users get the new definition"
    assert rollout_sentences(FlagSet(flags)) == {"a": words}
