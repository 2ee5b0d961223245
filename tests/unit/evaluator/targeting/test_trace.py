from __future__ import annotations

from typing import Any

from evaluator.flags.model import Bucketing
from evaluator.targeting import compile_rule
from evaluator.targeting.bucketing import bucket_of


def traced(rule: Any, context: dict[str, Any], bucketing: Bucketing = Bucketing.V2) -> list[Any]:
    found: list[Any] = []
    compiled = compile_rule(
        rule, bucketing=bucketing, flag_key="flag", trace=lambda *report: found.append(report)
    )
    compiled(context)
    return found


def test_every_operator_reports_its_path_and_result_innermost_first() -> None:
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
    assert traced(rule, {"tier": "gold"}) == [
        (("if", 0, "==", 0, "var"), "var", "gold", {"name": "tier"}),
        (("if", 0, "=="), "==", True, {}),
        (("if",), "if", "on", {}),
    ]


def test_what_is_not_evaluated_is_not_reported() -> None:
    rule = {"if": [True, "on", {"nonsense": []}]}
    assert [name for _, name, _, _ in traced(rule, {})] == ["if"]


def test_fractional_reports_its_bucket_of_how_many_and_what_was_hashed() -> None:
    rule = {"fractional": [["a", 30], ["b", 70]]}
    ((path, name, _, particulars),) = traced(rule, {"targetingKey": "user"})
    assert (path, name) == (("fractional",), "fractional")
    bucket = bucket_of("flaguser", 100)
    assert particulars == {"bucket": bucket, "of": 100, "hashed": "flaguser"}


def test_the_third_generation_reports_what_was_hashed_in_hexadecimal() -> None:
    rule = {"fractional": [{"var": "id"}, ["a", 1]]}
    reports = traced(rule, {"id": 5}, Bucketing.V3)
    assert reports[-1][3] == {"bucket": 0, "of": 1, "hashed": "05"}


def test_variables_in_loops_report_their_names_and_places() -> None:
    rule = {"some": [{"var": "users"}, {"==": [{"var": "name"}, "ann"]}]}
    assert traced(rule, {"users": [{"name": "ann"}]})[:2] == [
        (("some", 0, "var"), "var", [{"name": "ann"}], {"name": "users"}),
        (("some", 1, "==", 0, "var"), "var", "ann", {"name": "name"}),
    ]
