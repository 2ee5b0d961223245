"""Definitions that a rollout makes, on flagd's published cores: a user gets what the same core gives for the
new or for the promoted definition.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from evaluator.flags.accept import Progress, effective
from evaluator.flags.candidates import changed_flags, misfits
from evaluator.flags.canonical import digest
from evaluator.flags.merge import parse
from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.rollout_rules import Cohort
from evaluator.flags.rollouts import Arm, Exposure, Rollout, arm_rule
from evaluator.wire.sync_messages import encode
from tests.contract.generated_flags import VALUES, attributes, flags
from tests.contract.generated_rules import VARIANTS, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.flagd_core import FlagdCore
    from tests.contract.published_core import Core

pytestmark = pytest.mark.long

EXAMPLES = settings(
    max_examples=150, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
KINDS = {bool: "boolean", str: "string", int: "float", float: "float", dict: "object"}
Question = tuple[str, dict[str, Any]]
"""A flag's key and a context."""

STAFF = {"==": [{"var": "tier"}, "gold"]}
targeting_keys = st.one_of(st.none(), texts, st.text(min_size=1, max_size=12))
contexts = st.tuples(targeting_keys, attributes).map(
    lambda drawn: drawn[1] if drawn[0] is None else {**drawn[1], "targetingKey": drawn[0]}
)
cohorts = st.builds(Cohort, st.sampled_from([100, 5_000, 9_999, 10_000]), st.sampled_from([(), (STAFF,)]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[FlagSet, FlagSet]:
    """The desired and the promoted set; a variant has the same value in both."""
    values = dict(zip(VARIANTS, draw(st.sampled_from(VALUES)), strict=True))
    sets = []
    for _ in range(2):
        flag = draw(flags())
        names = sorted(flag["variants"])
        flag["variants"] = {name: values[name] for name in names}
        if not isinstance(flag.get("targeting", {}), dict):
            # Of a whole rule that is a literal, the published Python cores make nothing, or an error.
            del flag["targeting"]
        document = {"$evaluators": {"shared": {"if": [STAFF, "on", None]}}, "flags": {"f": flag}}
        parsed = parse(json.dumps(document).encode(), file="flags.json")
        assume(not parsed.errors)
        sets.append(parsed.flag_set)
    return sets[0], sets[1]


def compare(
    ask: Callable[[FlagSet, list[Question]], list[object]],
    sets: tuple[FlagSet, FlagSet],
    cohort: Cohort,
    drawn: list[dict[str, Any]],
) -> None:
    desired, promoted = sets
    changed = changed_flags(desired, promoted, ("f",))
    assume(changed and not misfits(desired, promoted, changed, cohort.audiences))
    exposure = Exposure("sha256:1", changed, cohort, "r/0a1b", "1/2")
    rollout = Rollout("r", ("f",), promoted, digest(promoted), (exposure,))
    made = effective(desired, Progress(rollouts=(rollout,))).flags["f"]
    arms = Flag("arm", State.ENABLED, {side.value: side.value for side in Arm}, targeting=arm_rule(made))
    served = replace(desired, flags={"f": made, "arm": arms})
    questions: list[Question] = [("f", context) for context in drawn]
    sides = ask(served, [("arm", context) for context in drawn])
    present, new, old = (ask(one, questions) for one in (served, desired, promoted))
    for number, side in enumerate(sides):
        assert present[number] == (new if side == "candidate" else old)[number], drawn[number]
        assert (side == "excluded") == (not drawn[number].get("targetingKey"))


def test_flagd_gives_each_user_one_of_the_two_definitions(flagd: FlagdCore) -> None:
    def ask(flag_set: FlagSet, questions: list[Question]) -> list[object]:
        asks = [{"key": key, "type": "any", "context": context} for key, context in questions]
        reply = flagd.ask(encode(flag_set).decode(), asks)
        assert reply.refused is None
        return [one.get("error") or one["variant"] for one in reply.answers]

    @EXAMPLES
    @given(pairs(), cohorts, st.lists(contexts, min_size=8, max_size=8))
    def check(sets: tuple[FlagSet, FlagSet], cohort: Cohort, drawn: list[dict[str, Any]]) -> None:
        compare(ask, sets, cohort, drawn)

    check()


@pytest.mark.oracle
def test_the_published_python_cores_give_each_user_one_of_the_two_definitions(core: Core) -> None:
    def ask(flag_set: FlagSet, questions: list[Question]) -> list[object]:
        document = json.loads(encode(flag_set))
        asks = []
        for key, context in questions:
            others = {name: value for name, value in context.items() if name != "targetingKey"}
            kind = KINDS[type(next(iter(document["flags"][key]["variants"].values())))]
            asks.append(
                {"key": key, "type": kind, "targetingKey": context.get("targetingKey"), "attributes": others}
            )
        return [one.get("error") or one["variant"] for one in core.ask(document, asks)]

    @EXAMPLES
    @given(pairs(), cohorts, st.lists(contexts, min_size=8, max_size=8))
    def check(sets: tuple[FlagSet, FlagSet], cohort: Cohort, drawn: list[dict[str, Any]]) -> None:
        compare(ask, sets, cohort, drawn)

    check()
