"""Resolving beside flagd's own evaluator: one random document after the other, each with random contexts.

FLAGSTAFF_FUZZ_EXAMPLES=20000 draws that many documents, others every time.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.contract.generated_flags import contexts, definitions

if TYPE_CHECKING:
    from tests.contract.flagd_core import FlagdCore


LONG = os.environ.get("FLAGSTAFF_FUZZ_EXAMPLES")
EXAMPLES = int(LONG or 250)
TYPES = ("boolean", "string", "integer", "float", "object")


@st.composite
def questions(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    document = draw(definitions())
    asks: list[dict[str, Any]] = []
    for targeting_key, attributes in draw(st.lists(contexts, min_size=3, max_size=4)):
        context = attributes if targeting_key is None else {**attributes, "targetingKey": targeting_key}
        asks += [
            {"key": key, "type": draw(st.sampled_from(TYPES)), "context": context}
            for key in [*document["flags"], "absent"]
        ]
    return document, asks


def ours(document: dict[str, Any], asks: list[dict[str, Any]], now: int) -> list[tuple[Any, ...]]:
    """(value as JSON, variant, reason, error code) of each."""
    parsed = parse(json.dumps(document).encode(), file="flags.json")
    assert parsed.flag_set is not None
    flags = compile_flag_set(parsed.flag_set)
    answers = []
    for ask in asks:
        found = resolve(flags, ask["key"], FlagType(ask["type"].upper()), ask["context"], now)
        value = None if found.value is ABSENT or found.error_code else found.value
        answers.append((value, found.variant or "", str(found.reason), str(found.error_code or "")))
    return answers


def theirs(answer: dict[str, Any]) -> tuple[Any, ...]:
    error = answer.get("error", "")
    value = None if error or not answer["variant"] else answer["value"]
    # flagd's services write the core's FALLBACK as DEFAULT.
    reason = answer["reason"].replace("FALLBACK", "DEFAULT")
    return (value, "" if error else answer["variant"], reason, error)


@pytest.mark.timeout(0 if LONG else 600)
def test_flagd_answers_as_this_evaluator_does(flagd: FlagdCore) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=LONG is None,
        deadline=None,
        database=None,
        phases=[Phase.generate, *([Phase.shrink] if LONG else [])],
        suppress_health_check=list(HealthCheck),
    )
    @given(questions())
    def compare(drawn: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
        document, asks = drawn
        reply = flagd.ask(document, asks)
        assert reply.refused is None
        for ask, answer, mine in zip(asks, reply.answers, ours(document, asks, reply.now), strict=True):
            assert mine == theirs(answer), json.dumps([document["flags"].get(ask["key"]), ask])

    compare()


WINDOW = {
    "and": [
        {"<=": [{"var": "from"}, {"var": "$flagd.timestamp"}]},
        {"<": [{"var": "$flagd.timestamp"}, {"var": "to"}]},
    ]
}
SPOOFED = {"$flagd": {"timestamp": 1_620_000_000, "flagKey": "other"}, "items": [1, 2]}
SAME: dict[str, tuple[Any, dict[str, Any]]] = {
    "a window of time that is open": ({"some": [[{"from": 17e8, "to": 19e9}], WINDOW]}, {}),
    "a window of time that is over, and a client that says what time it is": (
        {"some": [[{"from": 16e8, "to": 163e7}], WINDOW]}, SPOOFED,
    ),
    "the flag's key in a filter": (
        {"!!": {"filter": [{"var": "items"}, {"==": [{"var": "$flagd.flagKey"}, "f"]}]}}, SPOOFED,
    ),
    "the flag's key in none": (
        {"none": [{"var": "items"}, {"==": [{"var": "$flagd.flagKey"}, "f"]}]}, SPOOFED,
    ),
    "the flag's key in all": ({"all": [{"var": "items"}, {"==": [{"var": "$flagd.flagKey"}, "f"]}]}, SPOOFED),
    "the flag's key in a map": (
        {"in": ["f", {"map": [{"var": "items"}, {"var": "$flagd.flagKey"}]}]}, SPOOFED,
    ),
    "a shared rule in a loop": ({"some": [{"var": "items"}, {"$ref": "mine"}]}, SPOOFED),
    **{
        f"{operator} of one value": ({operator: [{"var": "x"}]}, {"x": 1})
        for operator in ("==", "!=", "<", "<=", ">", ">=", "===", "!==")
    },
    **{
        f"{operator} of a short list from a variable": ({operator: {"var": "x"}}, {"x": [1]})
        for operator in ("==", "!=", "<", ">=")
    },
    **{
        f"{operator} without a rule": ({"!": {operator: [{"var": "x"}]}}, {"x": [1]})
        for operator in ("filter", "map", "reduce")
    },
    "reduce without a start": ({"!": {"reduce": [{"var": "x"}, {"var": "current"}]}}, {"x": [1]}),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "context"), SAME.values(), ids=[each.replace(" ", "-") for each in SAME])
def test_flagd_answers_the_same_to(flagd: FlagdCore, rule: Any, context: dict[str, Any]) -> None:
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "targeting": {"if": [rule, "on", "off"]},
    }
    shared = {"mine": {"==": [{"var": "$flagd.flagKey"}, "f"]}}
    document = {"flags": {"f": flag}, "$evaluators": shared}
    asks = [{"key": "f", "type": "boolean", "context": context}]
    reply = flagd.ask(document, asks)
    assert reply.refused is None
    assert ours(document, asks, reply.now) == [theirs(each) for each in reply.answers]
