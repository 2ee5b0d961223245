"""Which workloads are restarted next, by tables and by whole upgrades of fleets that are made up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from controller.pods.restart_plan import (
    Budget,
    Halt,
    RestartPolicy,
    UpgradeProgress,
    UpgradeStep,
    Workload,
    WorkloadState,
    plan,
)

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
BEGUN: Final = UpgradeProgress()
AT_IT: Final = UpgradeProgress(targets=hashlib.sha256(b"new").hexdigest()[:16])
"""The pause before the first restart is over."""


def state(name: str = "a", *, outdated: int = 1, **more: Any) -> WorkloadState:
    """A Deployment of three pods, rolled out; `restarted`: when, for what it is to get."""
    restarted, settled = more.pop("restarted", None), more.pop("settled", True)
    workload = Workload(
        f"Deployment/{name}",
        "1",
        {},
        settled,
        more.pop("paused", ""),
        more.pop("at_once", 1),
        more.pop("restarted_for", "new" if restarted else ""),
        restarted,
    )
    return WorkloadState(workload, more.pop("pods", 3), outdated, "new", **more)


def chosen_names(step: UpgradeStep) -> list[str]:
    return [each.name.removeprefix("Deployment/") for each in step.restart]


def plan_step(
    *states: WorkloadState, now: datetime = NOW, before: UpgradeProgress = BEGUN, **policy: Any
) -> UpgradeStep:
    return plan(states, RestartPolicy(**policy), before, now)


def test_one_is_restarted_at_a_time_unless_more_are_asked_for() -> None:
    fleet = (state("a"), state("b"), state("c", outdated=0), state("d"))
    one = plan_step(*fleet)
    assert chosen_names(one) == ["a"]
    assert one.progress.restarting == {"Deployment/a": NOW}
    assert one.waiting == {"Deployment/b": "others roll out", "Deployment/d": "others roll out"}
    assert chosen_names(plan_step(*fleet, max_concurrent=2)) == ["a", "b"]


def test_the_next_waits_until_the_last_is_rolled_out_and_for_the_pause() -> None:
    first = plan_step(state("a"), state("b"), before=AT_IT, pause=MINUTE)
    rolling = state("a", restarted=NOW, settled=False)
    second = plan_step(rolling, state("b"), before=first.progress, pause=MINUTE)
    assert (chosen_names(second), second.finished) == ([], ())
    done = state("a", restarted=NOW, outdated=0)
    third = plan_step(done, state("b"), before=second.progress, pause=MINUTE, now=NOW + MINUTE)
    assert (chosen_names(third), third.finished) == ([], ("Deployment/a",))
    assert third.waiting == {"Deployment/b": "the pause between two restarts"}
    later = NOW + 2 * MINUTE
    assert chosen_names(plan_step(done, state("b"), before=third.progress, pause=MINUTE, now=later)) == ["b"]


def test_a_pause_is_made_before_the_first_restart_and_whenever_there_is_something_else_to_restart_for() -> (
    None
):
    job = state("job", paused="paused", left="paused")
    before = plan_step(job, pause=MINUTE).progress
    first = plan_step(job, state("a"), before=before, pause=MINUTE, now=NOW + 9 * MINUTE)
    assert (chosen_names(first), first.waiting) == ([], {"Deployment/a": "the pause between two restarts"})
    soon = NOW + 9.5 * MINUTE
    changed = plan_step(
        job, replace(state("a"), target="newer"), before=first.progress, pause=MINUTE, now=soon
    )
    later = NOW + 10 * MINUTE
    assert chosen_names(plan_step(job, state("a"), before=first.progress, pause=MINUTE, now=later)) == ["a"]
    another = replace(state("a"), target="newer")
    assert chosen_names(plan_step(job, another, before=changed.progress, pause=MINUTE, now=later)) == []
    assert chosen_names(
        plan_step(job, another, before=changed.progress, pause=MINUTE, now=soon + MINUTE)
    ) == ["a"]


def test_a_restart_and_one_that_would_be_refused_begin_no_pause() -> None:
    fleet = (state("a"), state("b"), state("c", left="its pods would be refused"))
    step = plan_step(*fleet, before=AT_IT, pause=MINUTE, max_concurrent=2)
    for a in (
        state("a", restarted=NOW, settled=False),
        state("a", restarted=NOW, settled=False, pods=0, outdated=0),
    ):
        again = plan_step(a, *fleet[1:], before=step.progress, pause=MINUTE, now=NOW + MINUTE)
        assert again.progress.pause_since is None
    only = plan_step(fleet[2], before=AT_IT, pause=MINUTE)
    assert only.progress == AT_IT


def test_one_that_is_not_rolled_out_by_itself_is_not_restarted() -> None:
    step = plan_step(state("a", settled=False, trouble="Pod/a-1: not ready"), state("b"))
    assert chosen_names(step) == ["b"]
    assert step.waiting == {"Deployment/a": "it is not rolled out: Pod/a-1: not ready"}


def test_a_budget_that_allows_nothing_holds_those_that_it_selects() -> None:
    none, some = Budget("none", {}, 0), Budget("some", {}, 1)
    step = plan_step(state("a", budgets=(some, none)), state("b", budgets=(some,)), max_concurrent=2)
    assert chosen_names(step) == ["b"]
    assert step.waiting == {"Deployment/a": "PodDisruptionBudget none allows 0 disruptions"}


def test_two_do_not_share_the_one_disruption_that_a_budget_allows() -> None:
    budget = (Budget("web", {}, 1),)
    fleet = state("a", budgets=budget), state("b", budgets=budget)
    assert chosen_names(plan_step(*fleet, max_concurrent=2)) == ["a"]
    rolling = state("a", budgets=budget, restarted=NOW, settled=False)
    assert chosen_names(plan_step(rolling, fleet[1], max_concurrent=2)) == []


def test_one_whose_pods_go_all_at_once_needs_as_many_disruptions() -> None:
    budget = (Budget("web", {}, 2),)
    assert chosen_names(plan_step(state(at_once=3, budgets=budget))) == []
    assert chosen_names(plan_step(state(at_once=2, budgets=budget))) == ["a"]


def test_an_excluded_workload_is_named_and_delays_no_other() -> None:
    step = plan_step(state("a", left="its update strategy is OnDelete"), state("b"))
    assert chosen_names(step) == ["b"]
    assert step.left == {"Deployment/a": "its update strategy is OnDelete"}


def test_one_that_is_not_ready_in_time_halts_all_until_it_goes_on() -> None:
    late = state("a", restarted=NOW, settled=False, trouble="Pod/a-1: container app: CrashLoopBackOff")
    before = UpgradeProgress({"Deployment/a": NOW})
    then = NOW + 10 * MINUTE
    early = plan_step(late, state("b"), before=before, now=then - MINUTE, max_concurrent=2)
    assert (chosen_names(early), early.progress.halt) == (["b"], None)
    step = plan_step(late, state("b"), before=before, now=then, max_concurrent=2)
    assert chosen_names(step) == []
    assert step.progress.halt == Halt("Deployment/a", "Pod/a-1: container app: CrashLoopBackOff")
    # That it recovers by itself does not let others go on.
    ready = state("a", restarted=NOW, outdated=0)
    still = plan_step(ready, state("b"), before=step.progress, now=then)
    assert (chosen_names(still), still.progress.halt) == ([], step.progress.halt)
    on = replace(still.progress, halt=None, resumed_at=then)
    assert chosen_names(plan_step(ready, state("b"), before=on, now=then)) == ["b"]
    # It has its time again.
    again = replace(step.progress, halt=None, resumed_at=then)
    assert plan_step(late, before=again, now=then + 9 * MINUTE).progress.halt is None
    assert plan_step(late, before=again, now=then + 10 * MINUTE).progress.halt is not None


def test_one_of_many_pods_has_the_deadline_for_each_of_them() -> None:
    before = UpgradeProgress({"Deployment/a": NOW})
    going = state("a", restarted=NOW, settled=False, progressed_at=NOW + 25 * MINUTE)
    assert plan_step(going, before=before, now=NOW + 34 * MINUTE).progress.halt is None
    assert plan_step(going, before=before, now=NOW + 35 * MINUTE).progress.halt is not None


def test_one_that_is_paused_while_it_rolls_out_keeps_its_place_for_its_deadline_and_halts_nothing() -> None:
    before = UpgradeProgress({"Deployment/a": NOW})
    out = state("a", restarted=NOW, settled=False, paused="paused", left="paused")
    assert chosen_names(plan_step(out, state("b"), before=before, now=NOW + 9 * MINUTE)) == []
    after = plan_step(out, state("b"), before=before, now=NOW + 10 * MINUTE)
    assert (chosen_names(after), after.progress.halt) == (["b"], None)


def test_one_whose_pods_would_be_refused_since_it_was_restarted_halts() -> None:
    stuck = state("a", restarted=NOW, settled=False, left="its pods would be refused")
    before = UpgradeProgress({"Deployment/a": NOW})
    assert plan_step(stuck, before=before, now=NOW + 10 * MINUTE).progress.halt is not None


def test_one_that_fails_long_after_it_was_restarted_halts_nothing() -> None:
    failing = state("a", restarted=NOW, outdated=0, settled=False)
    assert chosen_names(plan_step(failing, state("b"), now=NOW + 20 * MINUTE)) == ["b"]


def test_a_restart_whose_status_was_lost_is_known_by_its_mark() -> None:
    rolling = state("a", restarted=NOW, settled=False)
    step = plan_step(rolling, state("b"), now=NOW + MINUTE)
    assert (chosen_names(step), list(step.progress.restarting)) == ([], ["Deployment/a"])


def test_what_a_restart_does_not_change_is_not_restarted_again() -> None:
    same = state("a", restarted=NOW)
    before = UpgradeProgress({"Deployment/a": NOW})
    assert chosen_names(plan_step(same, state("b"), before=before, now=NOW + MINUTE)) == []
    step = plan_step(same, state("b"), before=before, now=NOW + 10 * MINUTE)
    assert step.progress.halt == Halt("Deployment/a", "its pods are outdated")
    # Its owner may take it out.
    out = state("a", restarted=NOW, paused="paused by its annotation", left="paused by its annotation")
    on = replace(step.progress, halt=None, resumed_at=NOW + 10 * MINUTE)
    after = plan_step(out, state("b"), before=on, now=NOW + 10 * MINUTE)
    assert (chosen_names(after), after.left) == (["b"], {"Deployment/a": "paused by its annotation"})


def test_one_that_was_restarted_long_ago_is_restarted_again_though_it_was_for_the_same() -> None:
    long_ago = NOW - timedelta(days=30)
    step = plan_step(state("a", restarted=long_ago))
    assert (chosen_names(step), step.progress.halt) == (["a"], None)
    scaled = plan_step(state("a", restarted=long_ago, settled=False), state("b"))
    assert (chosen_names(scaled), scaled.progress.halt) == (["b"], None)


def test_one_whose_pods_stay_outdated_is_restarted_once_for_each_time_that_it_is_to_go_on() -> None:
    before, restarts, at = UpgradeProgress({"Deployment/a": NOW}), 0, NOW
    for minute in range(40):
        now = NOW + minute * MINUTE
        if minute == 15:
            before = replace(before, halt=None, resumed_at=now)
        step = plan_step(state("a", restarted=at), before=before, now=now)
        if step.restart:
            restarts, at = restarts + 1, now
        before = step.progress
    assert restarts == 1
    assert before.halt == Halt("Deployment/a", "its pods are outdated")


def test_a_restart_that_is_undone_halts_until_it_goes_on() -> None:
    before = UpgradeProgress({"Deployment/a": NOW})
    earlier = NOW - timedelta(days=9)
    for undone in (state("a"), state("a", restarted=earlier), state("a", restarted=earlier, settled=False)):
        step = plan_step(undone, state("b"), before=before, now=NOW + MINUTE)
        assert (chosen_names(step), step.progress.halt) == (
            [],
            Halt("Deployment/a", "its restart was undone"),
        )
        assert chosen_names(plan_step(undone, before=step.progress, now=NOW + 2 * MINUTE)) == []
    # A person may have it restarted again, also before we have seen that it was undone: once.
    for halted in (before, UpgradeProgress(halt=Halt("Deployment/a", "its restart was undone"))):
        on = replace(halted, halt=None, resumed_at=NOW + MINUTE)
        again = plan_step(state("a"), before=on, now=NOW + MINUTE)
        assert chosen_names(again) == ["a"]
        once = plan_step(state("a"), before=again.progress, now=NOW + 2 * MINUTE)
        assert (chosen_names(once), once.progress.halt) == (
            [],
            Halt("Deployment/a", "its restart was undone"),
        )


def test_an_undone_restart_halts_nothing_where_its_owner_removed_it_or_its_pods_are_current() -> None:
    before = UpgradeProgress({"Deployment/a": NOW})
    for fine in (state("a", paused="paused", left="paused"), state("a", outdated=0)):
        assert chosen_names(plan_step(fine, state("b"), before=before, now=NOW + MINUTE)) == ["b"]


def test_another_change_while_one_rolls_out_waits_for_it_and_restarts_it_again() -> None:
    before = UpgradeProgress({"Deployment/a": NOW})
    rolling = state("a", restarted=NOW, settled=False, restarted_for="old")
    assert chosen_names(plan_step(rolling, before=before, now=NOW + MINUTE)) == []
    settled = state("a", restarted=NOW, restarted_for="old")
    assert chosen_names(plan_step(settled, before=before, now=NOW + MINUTE)) == ["a"]


def test_the_canary_goes_first_and_the_others_once_it_stayed_ready() -> None:
    fleet = (state("a", pods=3), state("b", pods=2), state("c", pods=2))
    policy: dict[str, Any] = {"soak": 5 * MINUTE, "max_concurrent": 3}
    step = plan_step(*fleet, **policy)
    assert (chosen_names(step), step.progress.canary) == (["b"], "Deployment/b")
    assert step.waiting["Deployment/a"] == "the canary Deployment/b"
    done = (fleet[0], state("b", pods=2, outdated=0, restarted=NOW), fleet[2])
    soaking = plan_step(*done, before=step.progress, now=NOW + MINUTE, **policy)
    assert chosen_names(soaking) == []
    assert soaking.waiting["Deployment/a"] == "the canary Deployment/b to stay ready"
    # It begins anew where the canary is not ready meanwhile.
    failing = (fleet[0], state("b", pods=2, outdated=0, restarted=NOW, settled=False), fleet[2])
    reset = plan_step(*failing, before=soaking.progress, now=NOW + 2 * MINUTE, **policy)
    assert (chosen_names(reset), reset.progress.canary_ready_at) == ([], None)
    ready = plan_step(*done, before=reset.progress, now=NOW + 3 * MINUTE, **policy)
    assert chosen_names(plan_step(*done, before=ready.progress, now=NOW + 7 * MINUTE, **policy)) == []
    after = plan_step(*done, before=ready.progress, now=NOW + 8 * MINUTE, **policy)
    assert chosen_names(after) == ["a", "c"]


def test_a_canary_that_stayed_ready_stops_no_other_until_it_is_outdated_again() -> None:
    policy: dict[str, Any] = {"soak": 5 * MINUTE, "canary": "Deployment/z"}
    before, then = UpgradeProgress(canary="Deployment/z", canary_ready_at=NOW), NOW + 5 * MINUTE
    passed = plan_step(state("a"), state("z", outdated=0, restarted=NOW), before=before, now=then, **policy)
    assert (chosen_names(passed), passed.progress.canary_passed) == (["a"], True)
    # An autoscaler adds a pod to it.
    before = replace(passed.progress, restarting={})
    scaled = plan_step(
        state("a"), state("z", outdated=0, restarted=NOW, settled=False), before=before, now=then, **policy
    )
    assert (chosen_names(scaled), scaled.progress.canary_passed) == (["a"], True)
    again = plan_step(state("a"), state("z", restarted_for="older"), before=before, now=then, **policy)
    assert (chosen_names(again), again.progress.canary_ready_at, again.progress.canary_passed) == (
        ["z"],
        None,
        False,
    )


def test_a_canary_that_is_named_is_waited_for_even_where_it_is_left_alone() -> None:
    policy: dict[str, Any] = {"soak": MINUTE, "canary": "Deployment/z"}
    assert chosen_names(plan_step(state("a"), state("z"), **policy)) == ["z"]
    missing = plan_step(state("a"), **policy)
    assert (chosen_names(missing), missing.waiting) == (
        [], {"Deployment/a": "the canary Deployment/z has no injected pod"},
    )  # fmt: skip
    assert chosen_names(plan_step(state("a"), state("z", left="paused"), **policy)) == []


def test_the_next_upgrade_has_a_canary_of_its_own() -> None:
    before = UpgradeProgress(canary="Deployment/a", canary_ready_at=NOW, canary_passed=True)
    step = plan_step(state("a", outdated=0), before=before, soak=MINUTE)
    assert step.progress == UpgradeProgress()


# -- whole upgrades ------------------------------------------------------------------------------------------

NAMES: Final = "abcdef"
FLEETS: Final = st.lists(st.sampled_from(["good", "bad", "slow"]), min_size=1, max_size=len(NAMES))
UNDOING: Final = st.lists(st.sampled_from(["good", "bad", "slow", "undone"]), min_size=1, max_size=len(NAMES))
POLICIES: Final = st.builds(
    RestartPolicy,
    max_concurrent=st.integers(1, 3),
    pause=st.sampled_from([timedelta(), MINUTE]),
    deadline=st.just(10 * MINUTE),
    soak=st.sampled_from([None, 2 * MINUTE]),
)
LOSSES: Final = st.lists(st.booleans(), min_size=100, max_size=100)


@dataclass
class Fleet:
    """Workloads that get ready after a set time, a bad one never; the template of one that is undone
    is written back at once. All share one budget.
    """

    manners: list[str]
    allowed: int
    old_stay: bool = True
    """Whether some old pods are there until all new ones are ready."""

    def __post_init__(self) -> None:
        self.restarts = {name: 0 for name, _ in zip(NAMES, self.manners, strict=False)}
        self.at: dict[str, datetime] = {}

    def unready_pods(self, now: datetime) -> set[str]:
        delays = {"undone": timedelta(), "good": MINUTE, "slow": 4 * MINUTE, "bad": timedelta(days=1)}
        manners = dict(zip(NAMES, self.manners, strict=False))
        return {name for name, at in self.at.items() if now - at < delays[manners[name]]}

    def states(self, now: datetime) -> list[WorkloadState]:
        rolling = self.unready_pods(now)
        budget = (Budget("all", {}, self.allowed),)
        return [
            state(
                name,
                outdated=int(name not in self.at or (self.old_stay and name in rolling)),
                settled=name not in rolling,
                restarted=self.at.get(name),
                budgets=budget,
            )
            for name in self.restarts
        ]

    def take(self, step: UpgradeStep, now: datetime) -> None:
        for each in step.restart:
            name = each.name[-1]
            self.restarts[name] += 1
            if self.manners[NAMES.index(name)] != "undone":
                self.at[name] = now


@given(FLEETS, POLICIES, st.integers(0, 3), LOSSES)
def test_no_more_than_allowed_nothing_past_a_halt_and_nothing_twice(
    manners: list[str], policy: RestartPolicy, allowed: int, losses: list[bool]
) -> None:
    """`losses`: whether the status of a look is lost, as by a crash of the controller; not all of them for as
    long as the deadline.
    """
    fleet, progress, now = Fleet(manners, allowed), UpgradeProgress(), NOW
    for number, may_be_lost in enumerate(losses):
        lost = may_be_lost and number % 15 != 0
        step = plan(fleet.states(now), policy, progress, now)
        if progress.halt is not None:
            assert step.restart == ()
            assert step.progress.halt == progress.halt
        fleet.take(step, now)
        assert len(fleet.unready_pods(now)) <= max(0, min(policy.max_concurrent, allowed))
        if step.progress.halt is None and lost:
            step = replace(step, progress=progress)
        progress, now = step.progress, now + timedelta(seconds=30)
    assert max(fleet.restarts.values()) <= 1
    if allowed and "bad" not in manners and not any(losses):
        assert set(fleet.restarts.values()) == {1}
        assert progress.restarting == {}


@given(manners=UNDOING, policy=POLICIES, old_stay=st.booleans())
def test_every_good_fleet_gets_there_and_every_bad_one_halts(
    manners: list[str], policy: RestartPolicy, *, old_stay: bool
) -> None:
    fleet, progress, now = Fleet(manners, 3, old_stay), UpgradeProgress(), NOW
    for _ in range(100):
        step = plan(fleet.states(now), policy, progress, now)
        fleet.take(step, now)
        progress, now = step.progress, now + timedelta(seconds=30)
    assert max(fleet.restarts.values()) <= 1
    if {"bad", "undone"} & {*manners}:
        assert progress.halt is not None
    else:
        assert set(fleet.restarts.values()) == {1}
        assert (progress.restarting, progress.halt) == ({}, None)
