"""No rule and no context keeps an evaluation busy."""

from __future__ import annotations

from typing import Any

import pytest

from evaluator.flags.model import Bucketing
from evaluator.targeting import RuleError, compile_rule

NUMBERS = list(range(1000))
CURRENT = {"var": "current"}
ACCUMULATOR = {"var": "accumulator"}


@pytest.mark.parametrize(
    ("rule", "context", "why"),
    [
        pytest.param({"map": [{"var": "rows"}, {"map": [{"var": "cells"}, 1]}]},
                     {"rows": [{"cells": NUMBERS}] * 1000}, "too many steps", id="loops within loops"),
        pytest.param({"reduce": [{"var": "rows"}, {"cat": [ACCUMULATOR, ACCUMULATOR]}, "a"]},
                     {"rows": NUMBERS}, "too long a text", id="a text that doubles"),
        pytest.param({"filter": [{"var": "rows"}, {"in": [{"var": ""}, {"var": "words"}]}]},
                     {"rows": NUMBERS, "words": ["w"] * 10_000}, "too many steps",
                     id="a long list searched often"),
        pytest.param({"filter": [{"var": "rows"}, {"!!": [{"var": "lists"}]}]},
                     {"rows": NUMBERS, "lists": [NUMBERS] * 100}, "too many steps",
                     id="a substituted list looked through often"),
        pytest.param({"or": [{"in": ["x", {"var": "words"}]}] * 2000}, {"words": "y" * 1_000_000},
                     "too many steps", id="a long text searched often"),
        pytest.param({"or": [{"!!": [{"var": {"var": "name"}}]}] * 2000}, {"name": ".".join("a" * 250_000)},
                     "too many steps", id="a name of many parts"),
        pytest.param({"or": [{"fractional": [{"var": "key"}, ["", 1]]}] * 2000}, {"key": "k" * 500_000},
                     "too many steps", id="a long key hashed often"),
        pytest.param({"fractional": [{"var": "key"}, ["a", 1]]}, {"key": {"rows": [NUMBERS] * 100}},
                     "too large", id="a document as bucketing value"),
    ],
)  # fmt: skip
def test_a_costly_evaluation_ends_with_an_error(rule: Any, context: Any, why: str) -> None:
    compiled = compile_rule(rule, bucketing=Bucketing.V3, flag_key="flag")
    with pytest.raises(RuleError, match=why):
        compiled(context)


def test_each_evaluation_has_its_own_budget() -> None:
    rule = compile_rule({"map": [{"var": "rows"}, 1]}, bucketing=Bucketing.V2, flag_key="flag")
    for _ in range(5):
        assert len(rule({"rows": [0] * 10_000})) == 10_000


@pytest.mark.parametrize("depth", [200, 10_000])
def test_a_rule_nested_too_deep_is_refused_when_it_is_evaluated(depth: int) -> None:
    rule: Any = True
    for _ in range(depth):
        rule = {"!": [rule]}
    with pytest.raises(RuleError, match="nested deeper"):
        compile_rule(rule, bucketing=Bucketing.V2, flag_key="flag")({})


def test_a_rule_of_the_greatest_depth_is_evaluated() -> None:
    rule: Any = {"var": "known"}
    for _ in range(99):
        rule = {"!": [rule]}
    assert compile_rule(rule, bucketing=Bucketing.V2, flag_key="flag")({"known": 1}) is False
