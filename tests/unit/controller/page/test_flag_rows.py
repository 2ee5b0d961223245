"""Which flags the list shows, in which order, and the view of one flag."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.api.meta import ObjectKey
from controller.authoring.flag_test_files import FlagTest
from controller.authoring.flag_test_runs import TestOutcome
from controller.delivery.problem_text import problem_list
from controller.delivery.set_state import OverrideLayer
from controller.page.flag_rows import FlagFilter, kind_of, select_flags
from controller.page.page_source import UNDELIVERED, FlagChange, ShownSet, VariantRates
from evaluator.flags.document import read_document
from evaluator.flags.model import Flag, State
from evaluator.flags.overrides import Override
from evaluator.flags.problems import Severity
from evaluator.resolving.resolve import compile_flag_set
from tests.rollout_sets import NEW, PLAIN, flags, rolled_out
from tests.worlds.delivery import OLD, WORLDS
from tests.worlds.page import NOW, FakeSource, ask, flag, shown_set, text

RULE = {"if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "on"]}
BANNER = OverrideLayer(
    ObjectKey("FlagOverride", "shop", "stop"), "banner", "off", audience=False, until="", reason="INC-7"
)
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
    state=replace(UNDELIVERED, layers=(BANNER,)),
)


def rolling() -> ShownSet:
    """A set with a flag at the first step of a rollout."""
    state = WORLDS["a rollout is at its first step"].state
    [layer] = state.candidates
    served = compile_flag_set(rolled_out(10))
    layered = replace(state, layers=(replace(layer, flags=(NEW.key,)),))
    return ShownSet("shop/checkout", flags(PLAIN, NEW), served, state=layered)


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
        ({"state": "expired"}, []),
        ({"state": "constant"}, ["banner", "cart"]),
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


def test_a_flag_past_its_date_says_so_in_its_row() -> None:
    dated = {
        name: flag(metadata={"expires": day}) for name, day in (("a", "2020-01-01"), ("b", "2999-01-01"))
    }
    shown = shown_set(dated)
    assert [row.key for row in select_flags(shown, FlagFilter.of({"state": "expired"}), NOW).rows] == ["a"]
    assert text(ask(FakeSource([shown]))).count('<p class="force">Past its date</p>') == 1


def test_fifty_flags_make_a_page_and_a_page_beyond_the_last_is_the_last() -> None:
    many = shown_set({f"flag-{number:03}": flag() for number in range(120)})
    second = select_flags(many, FlagFilter.of({"page": "2"}), NOW)
    assert (second.page, second.pages, second.rows[0].key, len(second.rows)) == (2, 3, "flag-050", 50)
    assert select_flags(many, FlagFilter.of({"page": "99999"}), NOW).page == 3


def test_a_flag_in_a_rollout_says_how_far_it_is_and_who_gets_which_definition() -> None:
    [row] = (row for row in select_flags(rolling(), FlagFilter(), NOW).rows if row.key == NEW.key)
    assert row.notes == (f"FlagRollout checkout: step 1/2, 10% of users get the new definition of {NEW.key}",)
    assert row.rule.startswith("10%: ")
    assert "; else " in row.rule
    page = text(ask(FakeSource([rolling()]), "/ui"))
    assert "starts with" not in page
    assert "fractional" not in page


def test_the_page_of_a_flag_in_a_rollout_has_both_definitions_and_leads_to_the_rollout() -> None:
    page = text(ask(FakeSource([rolling()]), f"/ui/flag?key={NEW.key}"))
    assert "<h3>For 10%: the new definition</h3>" in page
    assert "<h3>For everybody else: the promoted one</h3>" in page
    assert (
        '<a href="/ui/delivery?set=shop%2Fcheckout#candidate-444444444444">FlagRollout checkout</a>' in page
    )
    assert "salt" not in page
    assert "starts with" not in page


def test_what_if_in_a_rollout_shows_no_step_of_the_rollout_s_own_rule() -> None:
    page = text(ask(FakeSource([rolling()]), f"/ui/flag?key={NEW.key}", "targetingKey=ada"))
    assert "rollout r: step 1/2" in page or "rollout " in page.partition('id="answer"')[2]
    assert "fractional" not in page


def test_a_typo_alone_shows_the_flag_as_held_in_the_list_and_on_its_page() -> None:
    banner = replace(PLAIN, key="banner")
    shown = ShownSet(
        "shop/checkout", flags(banner), compile_flag_set(flags(banner)), OLD,
        state=WORLDS["a flag is held"].state,
    )  # fmt: skip
    assert [row.key for row in select_flags(shown, FlagFilter(state="held"), NOW).rows] == ["banner"]
    for target in ("/ui", "/ui/flag?key=banner"):
        assert "Served as in main@sha1:aaaaaaaaaaaa: its newest version is held: " in text(
            ask(FakeSource([shown]), target)
        )


def test_a_flag_that_a_failing_test_holds_shows_the_test_on_its_page() -> None:
    banner = replace(PLAIN, key="banner")
    state = WORLDS["a flag is held"].state
    document = read_document(b"{}", file="flags/base.flagtest.yaml")
    failing = FlagTest("the banner is on", "banner", document, ("tests", 0))
    message = 'the test "the banner is on" fails: expected variant "on"; came variant "off"'
    problems = problem_list([failing.problem(Severity.ERROR, "test-failed", message)])
    state = replace(state, newest=replace(state.newest, problems=problems))
    shown = ShownSet("shop/checkout", flags(banner), compile_flag_set(flags(banner)), OLD, state=state)
    page = text(ask(FakeSource([shown]), "/ui/flag?key=banner"))
    assert "flags/base.flagtest.yaml:1:1: error: the test" in page
    assert "came variant" in page
    assert [row.key for row in select_flags(shown, FlagFilter(state="held"), NOW).rows] == ["banner"]


def test_a_flag_whose_evaluator_fails_a_test_shows_the_test_on_its_page() -> None:
    document = read_document(b"{}", file="flags/base.flagtest.yaml")
    test = FlagTest("staff are staff", "staff", document, ("tests", 0), of_evaluator=True)
    failing = TestOutcome(test, "value true", "value false", passed=False, users=("banner", "other"))
    state = WORLDS["a flag is held"].state
    newest = replace(state.newest, problems=problem_list(failing.problems(Severity.WARNING)))
    served = flags(replace(PLAIN, key="banner"))
    shown = ShownSet(
        "shop/checkout", served, compile_flag_set(served), OLD, state=replace(state, newest=newest)
    )
    page = text(ask(FakeSource([shown]), "/ui/flag?key=banner"))
    assert "flags/base.flagtest.yaml:1:1: warning: the test" in page


def test_a_flag_without_a_good_definition_is_listed_with_what_is_wrong() -> None:
    state = WORLDS["a flag is held"].state
    [problem] = state.newest.problems
    problem = problem.model_copy(update={"path": "$.flags.pay.defaultVarient"})
    state = replace(state, newest=replace(state.newest, problems=(problem,)))
    shown = ShownSet("shop/checkout", flags(PLAIN), compile_flag_set(flags(PLAIN)), OLD, state=state)
    assert "Not served: its newest version is held: " in text(ask(FakeSource([shown]), "/ui"))
    page = text(ask(FakeSource([shown]), "/ui/flag?key=pay"))
    assert "flags/base.json:4:9: error:" in page
    assert "What if" not in page


def test_an_override_says_what_comes_back_and_the_flag_s_own_rule_is_shown() -> None:
    served = rolled_out(10, overrides=(Override("x", PLAIN.key, "off", "INC-4711", 4_000_000_000),))
    state = WORLDS["an override is in force"].state
    [layer] = state.overrides
    state = replace(state, layers=(replace(layer, flag=PLAIN.key),))
    shown = ShownSet("shop/checkout", flags(PLAIN, NEW), compile_flag_set(served), OLD, state=state)
    page = text(ask(FakeSource([shown]), f"/ui/flag?key={PLAIN.key}"))
    assert "INC-4711; when it ends: default on" in page
    assert "<h3>Without the override</h3>" in page
    assert "timestamp" not in page


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
