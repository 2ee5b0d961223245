"""Coverage counts the variants of flags and the results of conditions that tests reach."""

from __future__ import annotations

from typing import Any

from tests.unit.controller.authoring.test_flag_test_runs import GOLD, flags, report_of


def unreached(targeting: Any, *tests: dict[str, Any], **fields: Any) -> tuple[str, ...]:
    return report_of(flags(targeting, **fields), *tests).coverage.unreached.get("f", ())


def test_without_tests_nothing_is_reached() -> None:
    assert unreached(GOLD) == (
        'variant "on"',
        'variant "off"',
        "branch targeting.if[1]",
        "branch targeting.if[2]",
    )


def test_a_test_reaches_its_variant_and_its_branch() -> None:
    gold = {"context": {"tier": "gold"}, "expect": {"value": True}}
    assert unreached(GOLD, gold) == ('variant "off"', "branch targeting.if[2]")


def test_a_distribution_reaches_every_variant_that_has_users() -> None:
    assert unreached(GOLD, {"distribution": {"on": 10}}) == ("branch targeting.if[1]",)


def test_what_no_condition_admits_is_a_branch_where_no_result_is_written() -> None:
    rule = {"if": [{"var": "a"}, "on", {"var": "b"}, "off"]}
    assert unreached(rule, {"context": {"b": True}, "expect": {"value": False}}) == (
        'variant "on"',
        "branch targeting.if[1]",
        "branch targeting.if[4]",
    )


def test_an_inner_condition_counts_only_once_it_is_evaluated() -> None:
    rule = {"if": [{"var": "a"}, {"if": [{"var": "b"}, "on", "off"]}, "off"]}
    assert unreached(rule, {"expect": {"value": False}}) == (
        'variant "on"',
        "branch targeting.if[1]",
        "branch targeting.if[1].if[1]",
        "branch targeting.if[1].if[2]",
    )


def test_bodies_of_loops_have_no_branches() -> None:
    rule = {"if": [{"some": [{"var": "l"}, {"if": [{"var": "x"}, True, False]}]}, "on", "off"]}
    assert unreached(rule, {"context": {"l": [{"x": True}]}, "expect": {"value": True}}) == (
        'variant "off"',
        "branch targeting.if[2]",
    )


def test_a_disabled_flag_has_nothing_to_reach_and_makes_no_share() -> None:
    coverage = report_of(flags(GOLD, state="DISABLED")).coverage
    assert (coverage.percent, coverage.unreached) == (100.0, {})


def test_the_share_is_of_variants_and_branches_together() -> None:
    coverage = report_of(flags(GOLD), {"context": {"tier": "gold"}, "expect": {"value": True}}).coverage
    assert str(coverage) == "coverage 50.0 %: 1 of 1 flags, 1 of 2 variants, 1 of 2 branches"
