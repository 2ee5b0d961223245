"""The view of one flag: its kind, its evaluations, and its environments side by side."""

from __future__ import annotations

import re
from typing import Any

import pytest

from controller.page.flag_rows import kind_of
from controller.page.page_source import VariantRates
from evaluator.flags.model import Flag, State
from tests.worlds.page import FakeSource, ask, flag, shown_set, text


def test_evaluations_per_minute_are_shown_by_variant_in_the_list_and_of_the_flag() -> None:
    rates = {"a": VariantRates((10, 20), {"on": (6.0, 9.0), "off": (0.0, 3.0)})}
    source = FakeSource([shown_set({"a": flag(), "b": flag()})], known_rates=rates)
    for path in ("/ui/flags", "/ui/flag?key=a"):
        assert "Evaluations of a: 12 a minute: on 9, off 3" in text(ask(source, path))
    assert "Evaluations" not in text(ask(source, "/ui/flag?key=b"))


def test_environments_are_side_by_side_and_one_may_lack_the_flag() -> None:
    sets = (
        shown_set({"a": flag()}, "production"),
        shown_set({"a": flag(on=True)}, "staging"),
        shown_set({"b": flag()}, "test"),
    )
    page = text(ask(FakeSource(sets), "/ui/flag?set=production&key=a"))
    table = page.partition('class="environments"')[2]
    titles, states, defaults = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)[:3]
    assert re.findall(r">(\w+)</th>", titles) == ["production", "staging", "test"]
    assert re.findall(r"Enabled|not there", states) == ["Enabled", "Enabled", "not there"]
    assert re.findall(r'"variant">(\w+)<', defaults) == ["off", "on"]


@pytest.mark.parametrize(
    ("variants", "kind"),
    [
        ({"on": True}, "boolean"),
        ({"a": "x"}, "string"),
        ({"few": 1}, "integer"),
        ({"low": 1, "high": 1.5}, "float"),
        ({"a": {}}, "object"),
        ({}, ""),
    ],
)
def test_the_kind_of_a_flag_is_that_of_its_variants(variants: dict[str, Any], kind: str) -> None:
    assert kind_of(Flag("a", State.ENABLED, variants, next(iter(variants), None))) == kind
