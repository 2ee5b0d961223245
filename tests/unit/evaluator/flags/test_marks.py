"""The override and the rollout of a served flag are read back from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluator.flags.marks import OverrideMark, OwnRule, RolloutMark, override_mark, own_rules, rollout_mark
from evaluator.flags.model import ABSENT
from evaluator.flags.overrides import Override
from tests.rollout_sets import NEW, OLD, PLAIN, rolled_out

RULE = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
WITHOUT_END = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
KILL = Override("kill", NEW.key, "off", "INC-1", 7_200)


def test_a_flag_without_layers_has_no_marks_and_its_own_rule() -> None:
    flag = rolled_out(10).flags[PLAIN.key]
    assert (override_mark(flag.metadata), rollout_mark(flag.metadata)) == (None, None)
    assert own_rules(flag) == (OwnRule("", ABSENT, (), None),)


def test_a_rollout_is_named_with_its_candidate_and_its_step() -> None:
    mark = rollout_mark(rolled_out(10).flags[NEW.key].metadata)
    assert mark is not None
    assert mark == RolloutMark("checkout", mark.candidate, "2/4", "10")
    assert mark.candidate.startswith("sha256:")
    assert mark.position == "step 2/4, 10% of users"


@pytest.mark.parametrize(
    ("share", "step", "position"),
    [(0, "", "nobody gets the new definition"), (0, "1/4", "step 1/4, an audience gets it")],
)
def test_a_rollout_says_who_gets_the_new_definition(share: float, step: str, position: str) -> None:
    mark = rollout_mark(rolled_out(share, step=step).flags[NEW.key].metadata)
    assert mark is not None
    assert mark.position == position


def test_an_override_is_named_with_its_reason_and_its_end() -> None:
    metadata = rolled_out(10, overrides=(KILL,)).flags[NEW.key].metadata
    assert override_mark(metadata) == OverrideMark("kill", "INC-1", "1970-01-01T02:00:00Z")
    endless = rolled_out(10, overrides=(replace(KILL, expires=None),)).flags[NEW.key].metadata
    assert override_mark(endless) == OverrideMark("kill", "INC-1", "")


@pytest.mark.parametrize("overrides", [(), (KILL,)])
@pytest.mark.parametrize(
    ("new", "old", "rules"),
    [
        (ABSENT, ABSENT, [("new", ABSENT, "on"), ("promoted", ABSENT, "off")]),
        (RULE, ABSENT, [("new", RULE, None), ("promoted", ABSENT, "off")]),
        (WITHOUT_END, RULE, [("new", WITHOUT_END, "on"), ("promoted", RULE, None)]),
    ],
)
def test_both_definitions_of_a_step_are_read_back(
    overrides: tuple[Override, ...], new: Any, old: Any, rules: list[Any]
) -> None:
    served = rolled_out(
        10, old=replace(OLD, targeting=old), new=replace(NEW, targeting=new), overrides=overrides
    )
    found = own_rules(served.flags[NEW.key])
    assert [(rule.definition, rule.rule) for rule in found] == [rule[:2] for rule in rules]
    assert found[1].default == rules[1][2]


def test_before_the_first_step_the_promoted_definition_is_the_only_one() -> None:
    served = rolled_out(0, step="", old=replace(OLD, targeting=RULE))
    assert own_rules(served.flags[NEW.key]) == (OwnRule("", RULE, (), None),)
