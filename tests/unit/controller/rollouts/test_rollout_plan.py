"""What a FlagRollout would do with a change, and what `flagstaff rollout plan` prints of it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.fields import parse_spec
from controller.api.flagrollout import FlagRolloutSpec, RollbackWindow
from controller.api.meta import Resource
from controller.cli.plan_rollout import as_text
from controller.delivery.changed_flags import numbered_users
from controller.rollouts.rollout_plan import PlannedChange, RolloutPlan, plan
from evaluator.flags.candidates import changed_flags
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Flag, FlagSet, State
from tests.worlds.flags import flag_set_of
from tests.worlds.rollouts import ClusterWorld, definition

SATURDAY = datetime(2026, 11, 28, 12, tzinfo=UTC)
USERS = 2_000
CONTEXTS = tuple(numbered_users(USERS))
STEPS: list[dict[str, Any]] = [
    {"audience": {"ends_with": [{"var": "email"}, "@example.com"]}, "minDuration": "10m"},
    {"share": 10, "minDuration": "1h", "minSamples": 500},
    {"share": 50, "minDuration": "8h", "approval": "Required"},
]
OFFICE_HOURS = [{"days": ["Mon", "Tue", "Wed"], "from": "08:00", "to": "16:00", "timeZone": "Europe/Berlin"}]


def flag(key: str, default: str | None, rule: Any = ABSENT, **changes: Any) -> Flag:
    variants = {"on": True, "off": False, **changes.pop("variants", {})}
    return Flag(key, changes.pop("state", State.ENABLED), MappingProxyType(variants), default, rule)


def flag_set(*flags: Flag) -> FlagSet:
    return FlagSet(MappingProxyType({each.key: each for each in flags}))


def plan_of(
    before: FlagSet,
    after: FlagSet,
    contexts: tuple[dict[str, Any], ...] = CONTEXTS,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> RolloutPlan:
    fields = {"flagSetRef": {"name": "shop"}, "flags": ["new-*"], "steps": STEPS, **spec}
    metadata = {"namespace": "shop", "name": "checkout"}
    body = {"kind": "FlagRollout", "metadata": metadata, "spec": fields, "status": status or {}}
    resource = Resource.of(body)
    change = PlannedChange(("main", before), ("working tree", after))
    return plan(resource, parse_spec(FlagRolloutSpec, resource), change, contexts, SATURDAY)


PAY_OFF, PAY_ON = flag_set(flag("new-pay", "off")), flag_set(flag("new-pay", "on"))


def test_each_step_begins_once_the_last_one_has_lasted() -> None:
    made = plan_of(PAY_OFF, PAY_ON)
    starts = [SATURDAY, *(SATURDAY + timedelta(hours=hours, minutes=10) for hours in (0, 1, 9))]
    assert [step.earliest for step in made.steps] == [f"{start:%Y-%m-%dT%H:%M:%SZ}" for start in starts]
    assert [step.number for step in made.steps] == ["1/3", "2/3", "3/3", "promotion"]
    assert [step.users for step in made.steps] == ["audience", "10%", "50%", "everybody"]
    assert [step.approval for step in made.steps] == [False, False, True, False]
    assert made.steps[1].samples == 500


def test_a_step_with_a_date_does_not_begin_before_it() -> None:
    dates = ["2026-11-30T08:00:00+01:00", "2026-11-01T00:00:00Z", None]
    steps = [{**STEPS[0], "at": dates[1]}, {**STEPS[1], "at": dates[0]}, STEPS[2]]
    made = plan_of(PAY_OFF, PAY_ON, steps=steps)
    # The date of the first step has passed.
    assert [step.earliest for step in made.steps] == [
        "2026-11-28T12:00:00Z", "2026-11-30T07:00:00Z", "2026-11-30T08:00:00Z", "2026-11-30T16:00:00Z",
    ]  # fmt: skip


def test_steps_begin_in_windows_alone() -> None:
    made = plan_of(PAY_OFF, PAY_ON, windows=OFFICE_HOURS)
    assert [step.earliest for step in made.steps] == [
        "2026-11-30T07:00:00Z",
        "2026-11-30T07:10:00Z",
        "2026-11-30T08:10:00Z",
        "2026-12-01T07:00:00Z",
    ]


def test_a_freeze_delays_what_would_begin_in_it() -> None:
    freeze = [{"from": "2026-11-28T12:30:00Z", "to": "2027-01-04T08:00:00Z"}]
    made = plan_of(PAY_OFF, PAY_ON, freeze=freeze)
    assert [step.earliest for step in made.steps[:3]] == [
        "2026-11-28T12:00:00Z",
        "2026-11-28T12:10:00Z",
        "2027-01-04T08:00:00Z",
    ]


def test_a_step_lasts_for_one_check_at_least() -> None:
    metrics = [{"name": "errors", "templateRef": {"name": "errors"}, "thresholdRange": {"max": 1}}]
    made = plan_of(PAY_OFF, PAY_ON, steps=[{"share": 5}], analysis={"interval": "2m", "metrics": metrics})
    assert [step.lasts for step in made.steps] == [120.0, 0.0]


def test_the_cohort_of_each_step_is_moved_and_everybody_in_the_end() -> None:
    staff = tuple({**context, "email": f"{number}@example.{'com' if number % 4 == 0 else 'org'}"}
                  for number, context in enumerate(CONTEXTS))  # fmt: skip
    made = plan_of(PAY_OFF, PAY_ON, staff)
    expected = [25, 25 + 75 * 0.1, 25 + 75 * 0.5, 100]
    assert [step.moved for step in made.steps] == pytest.approx(expected, abs=2.5)
    assert [(each.key, each.moved, each.needed) for each in made.flags] == [("new-pay", 100, 100)]
    assert made.notes == ()


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=6, unique=True), st.integers(0, 10))
@settings(deadline=None, max_examples=15)
def test_no_step_moves_anybody_back(shares: list[int], weight: int) -> None:
    rule = {"fractional": [["on", weight], ["off", 10]]}
    steps = [{"share": share / 100} for share in sorted(shares)]
    made = plan_of(flag_set(flag("new-pay", "off")), flag_set(flag("new-pay", "off", rule)), steps=steps)
    moved = [step.moved for step in made.steps]
    assert moved == sorted(moved)
    if made.flags:
        assert made.flags[0].needed <= made.flags[0].moved == pytest.approx(moved[-1])


def test_what_takes_no_steps_is_named_with_its_reason() -> None:
    before = flag_set(
        flag("new-pay", "off"), flag("other", "off"), flag("new-old", "on"), flag("new-cart", "on")
    )
    disabled = flag("new-cart", "off", state=State.DISABLED)
    after = flag_set(flag("new-pay", "on"), flag("other", "on"), disabled, flag("new-x", "on"))
    made = plan_of(before, after)
    assert made.at_once == {
        "new-cart": "Disabled", "new-old": "Removed", "new-x": "Added", "other": "NotSelected",
    }  # fmt: skip
    assert [each.key for each in made.flags] == ["new-pay"]
    text = as_text(made)
    assert "FlagRollout checkout: main → working tree: 1 flag in 3 steps\n" in text
    assert "at once, disabled: new-cart\n" in text
    assert "at once, not in spec.flags: other\n" in text


def test_a_variant_with_another_value_holds_the_whole_change() -> None:
    before = flag_set(flag("new-pay", "off"), flag("new-cart", "off"))
    after = flag_set(flag("new-pay", "on", variants={"off": True}), flag("new-cart", "on"))
    made = plan_of(before, after)
    assert made.misfits == {"new-pay": "VariantValueChanged"}
    assert (made.steps, made.flags) == ((), ())
    assert "the change is held" in as_text(made)


def test_a_change_that_needs_no_steps_is_not_held() -> None:
    after = flag_set(flag("new-pay", "on", variants={"off": True}))
    made = plan_of(PAY_OFF, after, skipAnalysis=True)
    assert (made.misfits, [step.number for step in made.steps]) == ({}, ["promotion"])


def test_no_change_is_no_rollout() -> None:
    made = plan_of(PAY_ON, PAY_ON, suspend=True)
    assert (made.candidate, made.steps, made.at_once) == (None, (), {})
    assert as_text(made) == "FlagRollout checkout: main → working tree: nothing is rolled out\n"


def test_notes_say_what_delays_a_change_or_moves_users_without_need() -> None:
    halves = {"fractional": [["on", 50], ["off", 50]]}
    other = {"fractional": [["off", 50], ["on", 50]]}
    before, after = flag_set(flag("new-pay", "off", halves)), flag_set(flag("new-pay", "off", other))
    definition = changed_flags(after, before, ("new-*",))["new-pay"]
    stopped = {
        "flag": "new-pay",
        "definition": definition,
        "outcome": "Aborted",
        "at": "2026-11-27T12:00:00Z",
    }
    made = plan_of(before, after, status={"stopped": [stopped]}, pause=True, suspend=True)
    text = "\n".join(made.notes)
    for words in (
        "spec.suspend",
        '"new-pay" was stopped at 2026-11-27T12:00:00Z',
        "is paused",
        "new-pay moves 100.00% of users where",
        "no audience",
    ):
        assert words in text
    made = plan_of(before, after, skipAnalysis=True)
    assert "spec.skipAnalysis" in made.notes[0]
    assert [step.number for step in made.steps] == ["promotion"]


def test_a_flag_that_was_disabled_gives_users_outside_a_step_the_code_default() -> None:
    made = plan_of(flag_set(flag("new-pay", "off", state=State.DISABLED)), PAY_ON)
    assert '"new-pay" is disabled now, so users outside a step get the code default' in made.notes


def test_another_generation_of_bucketing_says_how_many_users_it_moves() -> None:
    rule = {"fractional": [["on", 50], ["off", 50]]}
    before = flag_set(flag("new-pay", "off", rule))
    made = plan_of(before, replace(before, metadata={BUCKETING_KEY: "v3"}))
    assert any(re.search(r"bucketing changes from v2 to v3: \d+ of", note) for note in made.notes)


def test_a_later_change_takes_its_flag_alone_out_of_a_candidate() -> None:
    candidate = {"digest": "sha256:1", "revision": "A", "phase": "Progressing"}
    flags = {"new-pay": "0" * 16, "new-cart": "1" * 16}
    made = plan_of(PAY_OFF, PAY_ON, status={"candidates": [{**candidate, "flags": flags}]})
    assert "new-pay leaves A (new-cart, new-pay), and begins anew; its other flags go on" in made.notes


async def test_a_change_back_is_promoted_at_once_as_the_controller_does_it() -> None:
    world = ClusterWorld()
    versions = {variant: {"pay": definition(variant)} for variant in ("off", "new", "on")}
    world.commit(versions["off"])
    world.rollout(windows=OFFICE_HOURS, rollbackWindow={"revisions": 2})
    await world.settle()
    for variant in ("new", "on"):
        world.commit(versions[variant])
        await world.wait(1200)
    before, after = (flag_set_of({"flags": versions[variant]}) for variant in ("on", "off"))

    def plan_back(revisions: int) -> RolloutPlan:
        resource = world.cluster.the("FlagRollout", "pay")
        spec = parse_spec(FlagRolloutSpec, resource)
        spec = spec.model_copy(update={"rollback_window": RollbackWindow(revisions=revisions)})
        change = PlannedChange(("FlagSet/checkout", before), ("working tree", after))
        return plan(resource, spec, change, CONTEXTS, SATURDAY)

    assert [step.number for step in plan_back(1).steps] == ["1/2", "2/2", "promotion"]
    made = plan_back(2)
    assert [(step.number, step.earliest) for step in made.steps] == [("promotion", "2026-11-30T07:00:00Z")]
    assert "within spec.rollbackWindow" in made.notes[0]
    assert "1 flag, promoted at once\n" in as_text(made)
    world.now = SATURDAY
    world.commit(versions["off"])
    await world.settle()
    assert (world.candidate().reason, world.users()) == ("OutsideWindow", {"on": 200})
    world.now = SATURDAY + timedelta(hours=43)
    await world.settle()
    assert (world.status().phase, world.users()) == ("Succeeded", {"off": 200})


def test_a_step_after_the_end_of_time_never_begins() -> None:
    freeze = [{"from": "2026-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"}]
    made = plan_of(PAY_OFF, PAY_ON, freeze=freeze)
    assert {step.earliest for step in made.steps[1:]} == {None}
    assert "never: no window opens" in as_text(made)
