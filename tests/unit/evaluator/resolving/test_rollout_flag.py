from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.model import FlagSet, State
from evaluator.flags.overrides import Override
from evaluator.flags.rollouts import ROLLOUT_ARM_KEY, ROLLOUT_KEY
from evaluator.resolving.explain import explain
from evaluator.resolving.resolution import ErrorCode, EvaluationReason, FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.rollout_sets import NEW, OLD, PLAIN, flags, rolled_out

if TYPE_CHECKING:
    from evaluator.resolving.resolution import Resolution

NOW = 1_700_000_000
USERS = [{"targetingKey": f"user-{number}"} for number in range(2_000)]


def resolve_flag(
    flag_set: FlagSet, context: dict[str, Any], key: str = NEW.key, now: int = NOW
) -> Resolution:
    return resolve(compile_flag_set(flag_set), key, FlagType.BOOLEAN, context, now)


def arm(resolution: Resolution) -> object:
    return resolution.metadata.get(ROLLOUT_ARM_KEY)


def test_each_answer_names_the_arm_whose_definition_it_is_of() -> None:
    compiled = compile_flag_set(rolled_out(25))
    answers = [resolve(compiled, NEW.key, FlagType.BOOLEAN, user, NOW) for user in USERS]
    by_arm = Counter((arm(answer), answer.variant) for answer in answers)
    assert set(by_arm) == {("candidate", "on"), ("baseline", "off")}
    assert 400 < by_arm["candidate", "on"] < 600


def test_an_arm_gives_the_same_resolution_to_all_its_users() -> None:
    compiled = compile_flag_set(rolled_out(50))
    answers = {resolve(compiled, NEW.key, FlagType.BOOLEAN, user, NOW) for user in USERS}
    assert len(answers) == 2


@pytest.mark.parametrize("context", [{}, {"targetingKey": ""}, {"targetingKey": None}, {"email": "a@b.c"}])
def test_a_user_without_targeting_key_is_excluded_and_gets_the_promoted_definition(
    context: dict[str, Any],
) -> None:
    answer = resolve_flag(rolled_out(100), context)
    assert (arm(answer), answer.variant) == ("excluded", "off")


def test_before_the_first_step_everybody_with_a_key_is_of_the_baseline() -> None:
    served = rolled_out(0, step="")
    assert [arm(resolve_flag(served, user)) for user in ({}, USERS[0])] == ["excluded", "baseline"]
    assert resolve_flag(served, USERS[0]).reason is EvaluationReason.STATIC


def test_a_flag_in_no_rollout_has_no_arm() -> None:
    compiled = compile_flag_set(rolled_out(50))
    assert arm(resolve_flag(rolled_out(50), USERS[0], PLAIN.key)) is None
    assert list(compiled.in_rollouts) == [NEW.key]


def test_a_user_under_an_override_is_excluded_until_it_ends() -> None:
    override = Override("off", NEW.key, "off", "INC-1", NOW, {"==": [{"var": "country"}, "NL"]})
    served = rolled_out(100, overrides=(override,))
    dutch, belgian = ({"targetingKey": "a", "country": country} for country in ("NL", "BE"))
    before, after = NOW - 1, NOW
    assert [arm(resolve_flag(served, user, now=before)) for user in (dutch, belgian)] == [
        "excluded",
        "candidate",
    ]
    assert arm(resolve_flag(served, dutch, now=after)) == "candidate"


def test_an_error_of_a_rule_names_the_arm_that_has_it() -> None:
    broken = replace(NEW, targeting={"no_such_operator": [1]})
    compiled = compile_flag_set(rolled_out(50, new=broken))
    answers = {resolve(compiled, NEW.key, None, user, NOW) for user in USERS}
    assert {(arm(answer), answer.error_code) for answer in answers} == {
        ("candidate", ErrorCode.PARSE_ERROR),
        ("baseline", None),
    }


def test_an_audience_that_fails_leaves_the_arm_open() -> None:
    answer = resolve_flag(rolled_out(0, audiences=({"var": [{"var": "x"}]},)), USERS[0])
    assert (arm(answer), answer.error_code) == (None, ErrorCode.PARSE_ERROR)


def test_a_promoted_definition_that_is_disabled_gives_the_code_default_to_the_baseline() -> None:
    served = rolled_out(50, old=replace(OLD, state=State.DISABLED))
    compiled = compile_flag_set(served)
    answers = {resolve(compiled, NEW.key, FlagType.BOOLEAN, user, NOW) for user in USERS}
    assert {(arm(answer), answer.variant) for answer in answers} == {("candidate", "on"), ("baseline", None)}


def test_an_explanation_has_the_steps_of_the_rule_alone_and_names_the_arm() -> None:
    compiled = compile_flag_set(rolled_out(50))
    explanation = explain(compiled, NEW.key, None, USERS[0], NOW)
    buckets = [step for step in explanation.steps if step.name == "fractional"]
    assert len(buckets) == 1
    assert arm(explanation.resolution) in ("candidate", "baseline")


def test_a_set_with_a_later_step_takes_nothing_of_the_earlier_one() -> None:
    earlier, later = compile_flag_set(rolled_out(1)), compile_flag_set(rolled_out(100, step="3/4"))
    earlier.compile_all()
    later.borrow(earlier)
    later.compile_all()
    assert {arm(resolve(later, NEW.key, None, user, NOW)) for user in USERS} == {"candidate"}


@given(st.sampled_from([OLD, NEW]), st.recursive(st.none() | st.text(), st.lists))
def test_a_mark_on_any_definition_breaks_no_evaluation(flag: Any, rule: Any) -> None:
    marks = {ROLLOUT_KEY: "checkout", "flagstaff.dev/rollout-step": "1/2"}
    marked = replace(flag, targeting=rule, metadata=MappingProxyType(marks))
    for key in ({}, USERS[0]):
        resolve_flag(flags(marked), key)
