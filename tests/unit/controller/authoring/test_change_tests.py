"""What tests say about a change: how many cover it, which fail, and which branches they leave out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.change_tests import CoveringTests, covering_tests
from controller.authoring.flag_test_coverage import changed_branches
from controller.authoring.flag_test_files import read_flag_tests
from evaluator.flags.merge import parse
from evaluator.flags.model import PREREQUISITES_KEY

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet

GOLD: Final = {"$ref": "gold"}


def flag_set(rule: Any, tier: str = "gold") -> FlagSet:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    evaluators = {"gold": {"==": [{"var": "tier"}, tier]}, "rich": {"and": [GOLD, {"var": "paid"}]}}
    text = json.dumps({"flags": {"f": flag | {"targeting": rule}}, "$evaluators": evaluators})
    return parse(text.encode(), file="flags.json").flag_set


def covering(
    before: FlagSet, after: FlagSet, *tests: dict[str, Any], held: tuple[str, ...] = ()
) -> dict[str, CoveringTests]:
    named = [{"name": f"t{number}"} | test for number, test in enumerate(tests)]
    read = read_flag_tests([[("f.flagtest.json", json.dumps({"tests": named}).encode())]])
    assert read.problems == ()
    return covering_tests(before, after, ["f"], read.cases, held)


def test_a_test_of_an_evaluator_covers_the_flags_that_use_it_also_by_way_of_another() -> None:
    rule = {"if": [{"$ref": "rich"}, "on", "off"]}
    about_gold = {"evaluator": "gold", "context": {"tier": "gold"}, "expect": {"value": True}}
    found = covering(flag_set(rule), flag_set(rule, "silver"), about_gold)
    assert found["f"].count == 1
    assert found["f"].failures == ('the test "t0" fails: expected value true; came value false',)


def test_a_test_of_a_prerequisite_covers_the_flags_that_need_it_also_by_way_of_another() -> None:
    def needing(variant: str) -> FlagSet:
        plain = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": variant}
        flags = {
            key: plain | ({"metadata": {PREREQUISITES_KEY: json.dumps([needed])}} if needed else {})
            for key, needed in (("f", "pay"), ("pay", "new-shop"), ("new-shop", ""), ("other", ""))
        }
        return parse(json.dumps({"flags": flags}).encode(), file="flags.json").flag_set

    about = [{"flag": key, "expect": {"variant": "on"}} for key in ("new-shop", "pay", "other")]
    found = covering(needing("on"), needing("off"), *about)["f"]
    assert found.count == len(found.failures) == 2


def test_tests_of_other_flags_and_evaluators_do_not_count() -> None:
    other = {"flag": "other", "missing": True}
    unused = {"evaluator": "gold", "context": {"tier": "gold"}, "expect": {"value": True}}
    assert covering(flag_set("on"), flag_set("off"), other, unused) == {"f": CoveringTests(0)}


def test_without_any_tests_nothing_is_said() -> None:
    assert covering(flag_set("on"), flag_set("off")) == {}


def test_tests_of_a_held_flag_count_and_do_not_run() -> None:
    wrong = {"flag": "f", "expect": {"variant": "on"}}
    assert covering(flag_set("on"), flag_set("off"), wrong, held=("f",)) == {"f": CoveringTests(1)}


def test_only_branches_that_change_are_missed() -> None:
    before = flag_set({"if": [GOLD, "on", {"var": "b"}, "on", "off"]})
    after = flag_set({"if": [GOLD, "on", {"var": "b"}, "off", "off"]})
    nothing = {"evaluator": "gold", "expect": {"value": False}}
    assert covering(before, after, nothing)["f"].untested == ("targeting.if[3]",)
    reached = {"flag": "f", "context": {"b": True}, "expect": {"variant": "off"}}
    assert covering(before, after, reached)["f"].untested == ()


def changes(before: Any, after: Any) -> list[str]:
    return sorted(map(str, changed_branches(before, after)))


def test_a_branch_changes_with_its_result_or_its_condition() -> None:
    rule = {"if": [{"var": "a"}, "on", "off"]}
    assert changes(rule, rule) == []
    assert changes(rule, {"if": [{"var": "a"}, "on", "on"]}) == ["targeting.if[2]"]
    assert changes(rule, {"if": [{"var": "b"}, "on", "off"]}) == ["targeting.if[1]"]


def test_every_branch_of_a_new_condition_changes() -> None:
    rule = {"if": [{"var": "a"}, "on"]}
    assert changes(None, rule) == ["targeting.if[1]", "targeting.if[2]"]
