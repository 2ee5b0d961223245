"""`in` with a constant list: looked up, with the answers of flagd's engine, which reads item by item."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evaluator.flags.model import Bucketing, Flag, FlagSet, State
from evaluator.flags.references import Expander, measure
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.targeting import RuleError, compile_rule
from evaluator.targeting.operators import SHARED_MEMBERS

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, 1.5, -0.0, 2**53, 2**70, 10**400]),
    st.sampled_from(["", "0", "1", "1.0", "1e0", "true", "null", "nan", "inf", "0x1p0", " 1", "a", "é"]),
)
NEEDLES: st.SearchStrategy[Any] = (
    SCALARS | st.lists(SCALARS, max_size=2) | st.just({}) | st.just({"a": 1, "b": 2})
)


def outcome(evaluate: Any, *arguments: Any) -> Any:
    try:
        return evaluate(*arguments)
    except RuleError as error:
        return str(error)


def read_in_order(needle: Any, items: list[Any]) -> Any:
    rule = {"in": [{"var": "needle"}, {"var": "items"}]}
    return compile_rule(rule, bucketing=Bucketing.V2, flag_key="f")({"needle": needle, "items": items})


def looked_up(needle: Any, items: list[Any]) -> Any:
    rule = {"in": [{"var": "needle"}, items]}
    return compile_rule(rule, bucketing=Bucketing.V2, flag_key="f")({"needle": needle})


@given(NEEDLES, st.lists(SCALARS, max_size=6))
@example(1, ["1"])
@example("1", [1])
@example(True, [1])
@example(1, [True])
@example(1, [1, True])
@example(2, [1, True])
@example(0, ["a"])
@example(10**400, [])
@example(10**400, ["1"])
@example([1], [1])
def test_a_look_up_answers_as_reading_the_items_one_by_one_does(needle: Any, items: list[Any]) -> None:
    assert outcome(looked_up, needle, items) == outcome(read_in_order, needle, items)


@given(NEEDLES, st.lists(SCALARS, min_size=70, max_size=80))
def test_a_long_list_gives_the_same_answers(needle: Any, items: list[Any]) -> None:
    assert outcome(looked_up, needle, items) == outcome(read_in_order, needle, items)


@pytest.mark.parametrize("needle", ["id-99999", "id-x", 5, 5.5, True, None])
def test_a_list_of_a_hundred_thousand_takes_no_steps(needle: Any) -> None:
    assert looked_up(needle, [f"id-{number}" for number in range(100_000)]) is (needle == "id-99999")


def test_items_of_a_list_that_is_looked_up_do_not_count_as_parts_of_the_rule() -> None:
    rule = {"in": [{"var": "id"}, ["x"] * 100_000]}
    assert (measure(rule).nodes, measure(rule).members) == (5, 100_000)
    expanded = Expander({"beta": rule}).extent({"if": [{"$ref": "beta"}, "on"]})
    assert (expanded.nodes, expanded.members) == (8, 100_000)


@pytest.mark.parametrize("rule", [{"in": ["x", [["x"]] * 20_000]}, {"merge": [["x"] * 20_000]}])
def test_items_of_other_lists_count(rule: Any) -> None:
    assert measure(rule).nodes > 10_000


def test_all_flags_that_refer_to_one_list_share_its_members() -> None:
    beta = {"in": [{"var": "targetingKey"}, [f"id-{number}" for number in range(1_000)]]}
    rules: dict[str, Any] = {
        "a": {"if": [{"$ref": "beta"}, "on"]},
        "b": {"if": [{"!": [{"$ref": "beta"}]}, "on"]},
    }
    flags = {
        key: Flag(key, State.ENABLED, {"on": True, "off": False}, "off", targeting=rule)
        for key, rule in rules.items()
    }
    compiled = compile_flag_set(FlagSet(flags, {"beta": beta}))
    before = len(SHARED_MEMBERS)
    compiled.compile_all()
    assert len(SHARED_MEMBERS) == before + 1
    answers = [resolve(compiled, key, None, {"targetingKey": "id-7"}, 0).variant for key in flags]
    assert answers == ["on", "off"]


def test_members_go_with_the_last_rule_that_uses_them() -> None:
    before = len(SHARED_MEMBERS)
    rule = compile_rule({"in": ["x", ["x"] * 1_000]}, bucketing=Bucketing.V2, flag_key="f")
    assert len(SHARED_MEMBERS) == before + 1
    del rule
    assert len(SHARED_MEMBERS) == before
