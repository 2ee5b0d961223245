from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from evaluator.flags.model import Bucketing
from evaluator.targeting import STEPS, Frame, RuleError, compile_rule
from evaluator.targeting.fractional import bucket_of
from tests.contract.generated_flags import contexts
from tests.contract.generated_rules import rules

if TYPE_CHECKING:
    from evaluator.targeting import CompiledRule, Trace


def trace_of(rule: Any, context: dict[str, Any], bucketing: Bucketing = Bucketing.V2) -> list[Any]:
    found: list[Any] = []
    compiled = compile_rule(rule, bucketing=bucketing, flag_key="flag")
    compiled(context, trace=lambda *report: found.append(report))
    return found


def test_every_operator_reports_its_path_and_result_innermost_first() -> None:
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
    assert trace_of(rule, {"tier": "gold"}) == [
        (("if", 0, "==", 0, "var"), "var", "gold", {"name": "tier"}),
        (("if", 0, "=="), "==", True, {}),
        (("if",), "if", "on", {}),
    ]


def test_what_is_not_evaluated_is_not_reported() -> None:
    rule = {"if": [True, "on", {"nonsense": []}]}
    assert [name for _, name, _, _ in trace_of(rule, {})] == ["if"]


def test_fractional_reports_its_bucket_of_how_many_and_what_was_hashed() -> None:
    rule = {"fractional": [["a", 30], ["b", 70]]}
    ((path, name, _, particulars),) = trace_of(rule, {"targetingKey": "user"})
    assert (path, name) == (("fractional",), "fractional")
    bucket = bucket_of("flaguser", 100)
    assert particulars == {"bucket": bucket, "of": 100, "hashed": "flaguser"}


def test_the_third_generation_reports_what_was_hashed_in_hexadecimal() -> None:
    rule = {"fractional": [{"var": "id"}, ["a", 1]]}
    reports = trace_of(rule, {"id": 5}, Bucketing.V3)
    assert reports[-1][3] == {"bucket": 0, "of": 1, "hashed": "05"}


def test_variables_in_loops_report_their_names_and_places() -> None:
    rule = {"some": [{"var": "users"}, {"==": [{"var": "name"}, "ann"]}]}
    assert trace_of(rule, {"users": [{"name": "ann"}]})[:2] == [
        (("some", 0, "var"), "var", [{"name": "ann"}], {"name": "users"}),
        (("some", 1, "==", 0, "var"), "var", "ann", {"name": "name"}),
    ]


def outcome(rule: CompiledRule, context: dict[str, Any], trace: Trace | None) -> tuple[str, int]:
    """What the rule came to, as text since NaN is not itself, and how many steps are left."""
    frame = Frame()
    frame.steps_left, frame.trace = STEPS, trace
    try:
        result = repr(rule.run(context, frame))
    except RuleError as error:
        result = str(error)
    return result, frame.steps_left


@given(rules(), contexts, st.sampled_from(Bucketing))
def test_a_trace_changes_neither_the_result_nor_the_steps(
    rule: Any, given_context: tuple[str | None, dict[str, Any]], bucketing: Bucketing
) -> None:
    targeting_key, attributes = given_context
    context = {**attributes, "targetingKey": targeting_key, "$flagd": {"flagKey": "flag", "timestamp": 0}}
    compiled = compile_rule(rule, bucketing=bucketing, flag_key="flag")
    reports: list[Any] = []
    traced = outcome(compiled, context, lambda *report: reports.append(report))
    assert traced == outcome(compiled, context, None)
    if reports and reports[-1][0] == (*rule,):
        assert repr(reports[-1][2]) == traced[0]
