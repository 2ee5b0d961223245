"""What is told of each flag of a set."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from controller.api.flagset_status import ProblemStatus
from controller.delivery.flag_state import flag_notes, flag_of, flag_states, held_text
from evaluator.flags.model import HELD_FROM_KEY
from evaluator.flags.overrides import Override
from tests.rollout_sets import NEW, PLAIN, flags, rolled_out
from tests.worlds.delivery import OLD, WORLDS

BANNER = replace(PLAIN, key="banner")


def test_a_held_flag_is_told_by_the_status_also_where_the_set_did_not_change() -> None:
    states = flag_states(WORLDS["a flag is held"].state, flags(BANNER, NEW))
    assert {key: state.held_from for key, state in states.items()} == {"banner": OLD, NEW.key: ""}
    assert states["banner"].held


def test_a_held_flag_is_told_by_its_own_metadata() -> None:
    held = replace(BANNER, metadata=MappingProxyType({HELD_FROM_KEY: "main@sha1:c"}))
    states = flag_states(WORLDS["everybody has it"].state, flags(held))
    assert states["banner"].held_from == "main@sha1:c"


def test_a_flag_without_a_good_definition_is_listed_with_its_problem() -> None:
    state = WORLDS["a flag is held"].state
    problem = ProblemStatus(severity="error", path='$.flags["new.pay"].variants', message="bad")
    state = replace(state, newest=replace(state.newest, problems=(problem,)))
    missing = flag_states(state, flags(BANNER))["new.pay"]
    assert (missing.flag, missing.held, missing.problems) == (None, True, (problem,))


@pytest.mark.parametrize(
    "message",
    [
        'the deletion of "banner" waits: 12 requests in 7 days',
        'policy owned (Hold): flag "banner": name an owner',
        'the test "all see it" fails: expected variant "on"; came variant "off"',
    ],
)
def test_a_held_flag_is_told_with_the_reason(message: str) -> None:
    state = WORLDS["a flag is held"].state
    problem = ProblemStatus(severity="error", flag="banner", message=message)
    other = ProblemStatus(severity="error", path="$.flags.other", message="bad")
    state = replace(state, newest=replace(state.newest, problems=(other, problem)))
    why = f"its newest version is held: {message}"
    assert flag_notes(flag_states(state, flags(BANNER))["banner"]) == (f"served as in {OLD}: {why}",)
    [held] = state.held
    assert held_text(held, state.newest.problems) == f"banner: served as in {OLD}; {why}"


def test_a_warning_alone_adds_no_flag() -> None:
    state = WORLDS["everybody has it"].state
    problem = ProblemStatus(severity="warning", path="$.flags.removed", message="odd")
    state = replace(state, newest=replace(state.newest, problems=(problem,)))
    assert [*flag_states(state, flags(BANNER))] == ["banner"]


def test_a_flag_names_its_candidate_and_its_own_rules() -> None:
    state = WORLDS["a rollout is at its first step"].state
    (layer,) = state.candidates
    state = replace(state, layers=(replace(layer, flags=(NEW.key,)),))
    states = flag_states(state, rolled_out(10))
    assert states[NEW.key].candidate is state.candidates[0]
    assert [rule.definition for rule in states[NEW.key].rules] == ["new", "promoted"]
    assert (states[PLAIN.key].candidate, states[PLAIN.key].rollout) == (None, None)


def test_a_flag_names_its_override() -> None:
    served = rolled_out(10, overrides=(Override("x", PLAIN.key, "off", "INC-4711", None),))
    state = flag_states(WORLDS["an override is in force"].state, served)[PLAIN.key]
    assert state.override is not None
    assert state.override_layer is not None
    assert state.override_layer.by == "ada"


@pytest.mark.parametrize(
    ("path", "key"),
    [("$.flags.pay.variants", "pay"), ('$.flags["a.b"]', "a.b"), ("spec.flagSpec.flags.pay", "pay"),
     ("$.metadata", ""), (None, ""), ('$["$evaluators"].x', "")],
)  # fmt: skip
def test_a_problem_is_about_a_flag_by_its_path(path: str | None, key: str) -> None:
    assert flag_of(ProblemStatus(severity="error", path=path, message="x")) == key
