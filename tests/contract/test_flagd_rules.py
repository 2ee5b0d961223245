"""Odd rules beside flagd's own evaluator: every operator with anything in it, loops within loops; and the
differences that docs/reference/evaluation.md declares.

FLAGSTAFF_FUZZ_EXAMPLES=20000 draws that many documents, others every time.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from evaluator.flags.model import Flag, FlagSet, State
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.targeting.compile import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.flagd_core import FlagdCore

LONG = os.environ.get("FLAGSTAFF_FUZZ_EXAMPLES")
EXAMPLES = int(LONG or 300)
REFUSED = "an object from the context stands where a rule is evaluated"
VARIANTS = {
    name: name
    for name in [
        "a", "b", "c", "d", "x", "flag", "true", "false", "0", "1", "2", "3", "5", "-0", "-1", "2.5", "on",
        "off", "aa", "1a",
    ]
}  # fmt: skip
SHARED = {"own": {"==": [{"var": "$flagd.flagKey"}, "f0"]}, "late": {"<": [5, {"var": "$flagd.timestamp"}]}}

LEAVES = [None, True, False, 0, 1, -1, 2.5, -0.0, "", "a", "1", "x", "flag", [], [1, 2], ["a"]]
NAMES = [
    "", "a", "b", ".a", "b.0", "xs", "c", "ys", "$flagd.flagKey", "$flagd.timestamp", "$flagd",
    "targetingKey", "current", "accumulator",
]  # fmt: skip
values = st.sampled_from([*LEAVES, {"k": 1, "l": 2}])
variables = st.sampled_from([{"var": name} for name in NAMES] + [{"var": [name, "d"]} for name in NAMES])
lists = st.sampled_from([{"var": "xs"}, {"var": "ys"}, [1, "a", None]])


def loops_around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    subject = st.one_of(lists, lists, inner)
    loops = st.sampled_from(["some", "filter", "none", "all", "map"])
    arguments = st.one_of(st.lists(inner, max_size=4), inner)
    return st.one_of(
        st.builds(lambda name, given: {name: given}, st.sampled_from(sorted(OPERATORS)), arguments),
        st.builds(lambda name, over, rule: {name: [over, rule]}, loops, subject, inner),
        st.builds(
            lambda over, rule, start: {"reduce": [over, rule, start]},
            subject,
            inner,
            st.sampled_from([0, "", False]),
        ),
        st.builds(lambda condition, result: {"if": [condition, result, "b"]}, inner, inner),
    )


references = st.sampled_from([{"$ref": name} for name in SHARED])
rules = st.recursive(st.one_of(values, variables, variables, references), loops_around, max_leaves=10)
people = st.fixed_dictionaries({"a": values, "b": values}, optional={"ys": st.lists(values, max_size=2)})
contexts = st.fixed_dictionaries(
    {"xs": st.lists(st.one_of(values, people), max_size=3)},
    optional={
        **dict.fromkeys(["a", "b", "c", "targetingKey"], values),
        "ys": st.lists(values, max_size=3),
        "$flagd": st.just({"flagKey": "forged", "timestamp": 5}),
    },
)


def both(flagd: FlagdCore, targeting: list[Any], given: list[Any]) -> Iterator[tuple[Any, str, str, str]]:
    """(rule and context, our answer, flagd's, our error message): a variant, or an error code."""
    flags = [
        Flag(f"f{index}", State.ENABLED, VARIANTS, "a", targeting=rule)
        for index, rule in enumerate(targeting)
    ]
    compiled = compile_flag_set(FlagSet(flags={flag.key: flag for flag in flags}, evaluators=SHARED))
    document = {
        "$evaluators": SHARED,
        "flags": {
            flag.key: {"state": "ENABLED", "variants": VARIANTS, "defaultVariant": "a", "targeting": rule}
            for flag, rule in zip(flags, targeting, strict=True)
        },
    }
    asks = [{"key": flag.key, "type": "string", "context": one} for one in given for flag in flags]
    reply = flagd.ask(document, asks)
    assert reply.refused is None
    for ask, answer in zip(asks, reply.answers, strict=True):
        mine = resolve(compiled, ask["key"], FlagType.STRING, ask["context"], reply.now)
        rule_and_context = [compiled.flag_set.flags[ask["key"]].targeting, ask["context"]]
        yield (
            rule_and_context,
            str(mine.error_code or mine.variant),
            answer.get("error") or answer["variant"],
            mine.error_message,
        )


@pytest.mark.timeout(0 if LONG else 600)
def test_flagd_makes_the_same_of_odd_rules(flagd: FlagdCore) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=LONG is None,
        deadline=None,
        database=None,
        phases=[Phase.generate, *([Phase.shrink] if LONG else [])],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(rules, min_size=1, max_size=5), st.lists(contexts, min_size=2, max_size=3))
    def compare(targeting: list[Any], given: list[Any]) -> None:
        for rule_and_context, mine, theirs, message in both(flagd, targeting, given):
            assert mine == theirs or message == REFUSED, json.dumps(rule_and_context)

    compare()


@pytest.mark.parametrize(
    ("rule", "context", "ours", "theirs"),
    [
        pytest.param({"if": [True, {"var": "a"}]}, {"a": {"var": "b"}, "b": "x"}, "PARSE_ERROR", "x",
                     id="a client's rule"),
        pytest.param({"!": [{"map": [{"var": "xs"}, 1]}]}, {"xs": [0] * 20_001}, "PARSE_ERROR", "false",
                     id="many steps"),
        pytest.param({">": [{"var": "a"}, 500]}, {"a": "1_000"}, "false", "true", id="underscores"),
        pytest.param({"===": [{"-": []}, 0]}, {}, "true", "false", id="minus of nothing, strictly"),
        pytest.param({"in": [{"/": []}, [0]]}, {}, "true", "false", id="quotient of nothing, in a list"),
        pytest.param({"fractional": ["u", ["on", {"-": []}], ["off", 1]]}, {}, "off", "a",
                     id="minus of nothing as weight"),
        pytest.param(
            {"!": [{"filter": [[], {"var": [1]}]}]}, {}, "true", "PARSE_ERROR", id="filter of an empty list"
        ),
        pytest.param({"some": [[1], {"some": [[{"var": "a"}], {"==": [{"var": ""}, "x"]}]}]}, {"a": "x"},
                     "false", "true", id="a literal list in an inner loop"),
    ],
)  # fmt: skip
def test_a_declared_difference_is_still_one(
    flagd: FlagdCore, rule: Any, context: Any, ours: str, theirs: str
) -> None:
    ((_, mine, other, _),) = both(flagd, [rule], [context])
    assert (mine, other) == (ours, theirs)
