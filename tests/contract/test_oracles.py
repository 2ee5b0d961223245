"""Resolving beside the published Python cores: one random document after the other, each with random
contexts.

Whatever differs is a bug here, or a row of KNOWN_DIFFERENCES. FLAGSTAFF_FUZZ_EXAMPLES=20000 draws that many
documents for each generation, others every time; ORACLES names another folder of environments.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.flags.merge import parse
from evaluator.flags.model import ABSENT, Bucketing, State
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.contract.differences import KNOWN_DIFFERENCES
from tests.contract.differences.calls import Call
from tests.contract.generated_flags import contexts, definitions
from tests.contract.published_core import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.differences.row import Difference
    from tests.contract.published_core import Core


pytestmark = pytest.mark.oracle

LONG = os.environ.get("FLAGSTAFF_FUZZ_EXAMPLES")
EXAMPLES = int(LONG or 120)
TYPES = ("boolean", "string", "integer", "float", "object")
LEAST_COMPARED = 0.6

ROWS: dict[str, list[Difference]] = {}
for row in KNOWN_DIFFERENCES:
    for operator in row.operators.split():
        ROWS.setdefault(operator, []).append(row)


def context_of(ask: dict[str, Any]) -> dict[str, Any]:
    key = ask["targetingKey"]
    return {**ask["attributes"], **({} if key is None else {"targetingKey": key})}


def ours(document: dict[str, Any], asks: list[dict[str, Any]], generation: str) -> list[tuple[Any, ...]]:
    """(value, variant, reason, error code, metadata) of each; the last is None for errors."""
    parsed = parse(json.dumps(document).encode(), file="flags.json")
    assert parsed.flag_set is not None
    flags = compile_flag_set(parsed.flag_set, bucketing=Bucketing(generation))
    answers: list[tuple[Any, ...]] = []
    for ask in asks:
        found = resolve(flags, ask["key"], FlagType(ask["type"].upper()), context_of(ask), NOW)
        if found.error_code is not None:
            answers.append((None, None, "ERROR", str(found.error_code), None))
        else:
            value = None if found.value is ABSENT else typed_text(found.value)
            answers.append((value, found.variant, str(found.reason), None, dict(found.metadata)))
    return answers


def typed_text(value: Any) -> str:
    """JSON text, so that 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True)


def theirs(answer: dict[str, Any]) -> tuple[Any, ...]:
    if "error" in answer:
        return (None, None, "ERROR", answer["error"], None)
    value = None if answer["variant"] is None else typed_text(answer["value"])
    return (value, answer["variant"], answer["reason"], None, answer["metadata"])


def calls(
    document: dict[str, Any], ask: dict[str, Any], answer: dict[str, Any], generation: str
) -> Iterator[Call]:
    """What the core evaluated, and the flag around it."""
    flag = document["flags"].get(ask["key"], {"variants": {}})
    context = {**ask["attributes"], "targetingKey": ask["targetingKey"]}
    context["$flagd"] = {"flagKey": ask["key"], "timestamp": NOW}
    made = answer["calls"]
    if flag.get("state") != State.DISABLED:
        outcome = [made[0]["result"]] if made and "result" in made[0] else []
        yield Call("flag", flag, outcome, ask["type"])
    for call in made:
        yield Call(
            call["name"],
            call["raw"],
            call["parts"],
            call.get("scope", context),
            call.get("result"),
            generation,
        )


def explanation_of(found: Iterator[Call]) -> Difference | None:
    """The row that applies to one of the calls, if one does."""
    for call in found:
        for row in ROWS.get(call.name, ()):
            if row.applies(call):
                return row
    return None


@st.composite
def questions(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    document = draw(definitions())
    asks = []
    for targeting_key, attributes in draw(st.lists(contexts, min_size=3, max_size=4)):
        for key, flag in [*document["flags"].items(), ("absent", None)]:
            asks.append(
                {
                    "key": key,
                    "type": draw(st.sampled_from(TYPES)) if flag is None else draw(asked_types(flag)),
                    "targetingKey": targeting_key,
                    "attributes": attributes,
                }
            )
    return document, asks


def asked_types(flag: dict[str, Any]) -> st.SearchStrategy[str]:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "float", dict: "object"}
    own = [kinds[type(value)] for value in flag["variants"].values()]
    return st.sampled_from([*own * 3, *TYPES])


@pytest.mark.timeout(0 if LONG else 600)
def test_a_published_core_answers_as_this_evaluator_does(core: Core) -> None:
    tally: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=LONG is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(questions())
    def compare(drawn: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
        document, asks = drawn
        for ask, answer, mine in zip(
            asks, core.ask(document, asks), ours(document, asks, core.generation), strict=True
        ):
            row = explanation_of(calls(document, ask, answer, core.generation))
            tally["compared" if row is None else row.name] += ask["key"] != "absent"
            if row is None:
                flag = document["flags"].get(ask["key"])
                assert mine == theirs(answer), json.dumps([flag, ask, answer["calls"]])

    compare()
    share = tally["compared"] / tally.total()
    assert share >= LEAST_COMPARED, tally.most_common()


def split(context: dict[str, Any]) -> dict[str, Any]:
    rest = dict(context)
    return {"targetingKey": rest.pop("targetingKey", None), "attributes": rest}


def format_answer(answer: tuple[Any, ...]) -> str:
    _, variant, reason, error, _ = answer
    return str(error or (variant if reason == "TARGETING_MATCH" else reason))


@pytest.mark.parametrize("row", KNOWN_DIFFERENCES, ids=lambda row: row.name.replace(" ", "-"))
def test_a_known_difference_is_still_one(row: Difference, core: Core) -> None:
    if core.generation not in row.generations:
        pytest.skip("this difference is of the other generation")
    names = ("true", "false", "a", "ab", "x", "0.3", "0.30000000000000004", *map(str, range(-9, 10)))
    variants = {**({} if row.variants else {name: name for name in names}), **row.variants}
    flag = {
        "state": "ENABLED",
        "variants": variants,
        "targeting": row.rule,
        "defaultVariant": next(iter(variants)),
    }
    document = {"flags": {"f": flag}}
    asks = [{"key": "f", "type": row.wanted, **split(row.context)}]
    (answer,) = core.ask(document, asks)
    (mine,) = ours(document, asks, core.generation)
    assert (format_answer(mine), format_answer(theirs(answer))) == (row.ours, row.theirs)
    made = list(calls(document, asks[0], answer, core.generation))
    assert any(call.name in row.operators.split() and row.applies(call) for call in made)
