"""How far a revision has come, in each world."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.delivery.reach import Reached, ReachTarget, reach
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import Reach
from tests.worlds.delivery import (
    AT_STEP,
    FIRST,
    MIXED,
    NEW,
    NOW,
    OLD,
    OWN_NEW,
    OWN_OLD,
    WORLDS,
    candidate,
    conditions,
    entry,
    flag_set,
    laggard,
    rollout,
    set_object,
)

if TYPE_CHECKING:
    from controller.api.meta import Resource

PLAIN = f"main@sha1:{'c' * 40}"
OBJECT = "the FeatureFlagConfiguration"

LEVELS = {
    "everybody has it": Reach.SERVED_BY_ALL,
    "the object does not exist yet": Reach.APPLIED,
    "the source has a newer commit": Reach.FETCHED,
    "a flag is held": Reach.FETCHED,
    "the commit is refused": Reach.FETCHED,
    "the deletion guard waits": Reach.FETCHED,
    "an evaluator is behind": Reach.DELIVERED,
    "nobody reports": Reach.DELIVERED,
    "a rollout is at its first step": Reach.SERVED_IN_PART,
    "a rollout is at its first step, and an evaluator is behind": Reach.DELIVERED,
    "two candidates run beside each other": Reach.SERVED_IN_PART,
    "the rollout was aborted": Reach.SERVED_IN_PART,
    "the rollout is promoted, and not all serve it": Reach.DELIVERED,
    "the rollout is gone": Reach.SERVED_IN_PART,
    "the rollout has not seen the flags yet": Reach.SERVED_IN_PART,
    "an override is in force": Reach.SERVED_IN_PART,
    "an override has ended": Reach.SERVED_BY_ALL,
    "remote flags are merged": Reach.SERVED_BY_ALL,
    "the FlagSet is suspended": Reach.FETCHED,
    "the object is a FeatureFlag": Reach.SERVED_BY_ALL,
    "the object is written by hand": Reach.SERVED_BY_ALL,
    "the object is written by hand, with a bad flag": Reach.FETCHED,
    "the controller has not seen the object yet": Reach.APPLIED,
}


def look(
    target: Resource | None, writer: Resource | None = None, revision: str = NEW, **wanted: Any
) -> Reached:
    """How far a revision has come in a world of an object and a FlagSet."""
    if writer is None and target is not None:
        target = replace(target, labels={})
    (state,) = read_sets(filter(None, (target, writer)), NOW)
    return reach(state, ReachTarget(revision, **wanted))


@pytest.mark.parametrize("title", LEVELS)
def test_a_revision_reaches_a_level(title: str) -> None:
    world = WORLDS[title]
    assert reach(world.state, ReachTarget(world.revision)).level is LEVELS[title]


@pytest.mark.parametrize("title", WORLDS)
def test_everybody_is_waited_for_until_all_are_served(title: str) -> None:
    world = WORLDS[title]
    reached = reach(world.state, ReachTarget(world.revision, everybody=True))
    assert reached.done is (reached.level is Reach.SERVED_BY_ALL)
    assert not (reached.done and reached.blocked)


def test_a_delivered_revision_says_who_has_it() -> None:
    reached = reach(WORLDS["a rollout is at its first step"].state, ReachTarget(NEW))
    assert reached.done
    assert reached.message == (
        f"3 of 3 evaluators serve {NEW}; FlagRollout checkout: step 1/2, 10% of users get the new definition "
        "of banner"
    )


def test_a_stopped_candidate_ends_the_wait_for_everybody() -> None:
    state = WORLDS["the rollout was aborted"].state
    assert reach(state, ReachTarget(NEW, everybody=True)).blocked
    assert reach(state, ReachTarget(NEW)).done


def test_a_suspended_flag_set_ends_the_wait_and_says_so() -> None:
    reached = look(set_object(OLD, OWN_OLD), flag_set(OLD, OLD, OWN_OLD, spec={"suspend": True}))
    assert (reached.done, reached.blocked) == (False, True)
    assert reached.message == f"FlagSet checkout is suspended, with {OLD} applied"
    assert look(set_object(), flag_set(spec={"suspend": True})).done


def history(*entries: tuple[str, str] | tuple[str, str, int], **status: Any) -> Resource:
    """A FlagSet with these (revision, digest, flags that are not as it has them), the newest first."""
    listed = [dict(zip(("revision", "digest", "held"), values, strict=False)) for values in entries]
    applied = {"lastAppliedRevision": listed[0]["revision"], "digest": listed[0]["digest"]} if listed else {}
    return flag_set(**{"history": listed, **applied, **status})


BEFORE = set_object(OLD, OWN_NEW)
HOLDING = history((NEW, OWN_NEW, 1))


@pytest.mark.parametrize(
    ("target", "writer", "expected"),
    [
        (set_object(observedGeneration=0), None, f"the controller has not processed {OBJECT} yet"),
        (BEFORE, None, f"{OBJECT} has {OLD}, not {NEW}"),
        (BEFORE, history((OLD, OWN_NEW), conditions=conditions("Progressing", "bad flag")),
         f"{NEW} is not applied: bad flag"),
        (BEFORE, history((OLD, OWN_NEW), (NEW, "sha256:x"), lastAttemptedRevision=OLD),
         f"{NEW} was applied, and {OLD} has replaced it"),
        (BEFORE, HOLDING, f"{NEW} is not applied whole"),
        (set_object(), HOLDING, f"{NEW} is not applied whole"),
        (BEFORE, history((PLAIN, OWN_NEW), (NEW, OWN_NEW, 1), lastAttemptedRevision=PLAIN),
         f"{NEW} was applied only in part, and {PLAIN} has replaced it"),
        (set_object(), flag_set(OLD, OLD, OWN_OLD),
         f"{OBJECT} does not have the content that the FlagSet built from {NEW}"),
        (set_object(served="0/0"), None, f"no evaluator that sends receipts is subscribed to {NEW}"),
        (set_object(served="2/3"), None, f"2 of 3 evaluators serve {NEW}"),
    ],
    ids=[
        "an older verdict", "another revision", "refused", "overtaken",
        "a flag is held, and the set is as before", "a flag is held, and others changed",
        "corrected by a later commit",
        "the FlagSet does not report yet what is held", "nobody", "not all",
    ],
)  # fmt: skip
def test_a_revision_is_not_served_and_why(target: Resource, writer: Resource | None, expected: str) -> None:
    reached = look(target, writer)
    assert (reached.done, reached.message) == (False, expected)


def test_a_commit_that_changed_no_flag_is_served_with_the_flags_that_it_has() -> None:
    assert look(set_object(), history((PLAIN, OWN_NEW), (NEW, OWN_NEW)), PLAIN).done


def test_a_revision_that_was_held_first_and_applied_whole_then_is_served() -> None:
    assert look(set_object(), history((NEW, OWN_NEW), (OLD, OWN_OLD), (NEW, "sha256:x", 1))).done


@pytest.mark.parametrize(
    ("entries", "generation", "blocked"),
    [([(NEW, OWN_NEW, 1)], 1, True), ([(OLD, OWN_OLD)], 1, True), ([(NEW, OWN_NEW, 1)], 2, False)],
    ids=["held", "refused", "the FlagSet was changed meanwhile"],
)
def test_there_is_nothing_to_wait_for_once_a_person_must_change_something(
    entries: list[Any], generation: int, blocked: bool
) -> None:
    writer = history(*entries, conditions=conditions("BuildFailed", "bad flag"))
    reached = look(set_object(OLD, OWN_OLD), replace(writer, generation=generation), allow_none=True)
    assert (reached.done, reached.blocked) == (False, blocked)
    assert reached.message.endswith(": bad flag")


def test_a_revision_that_changed_flags_is_not_served_by_others() -> None:
    assert not look(set_object(), history((NEW, OWN_NEW), (OLD, OWN_OLD)), OLD).done


@pytest.mark.parametrize(
    ("served", "percent", "done"),
    [("1/3", 34.0, False), ("1/3", 33.0, True), ("2/3", 66.0, True), ("199/200", 100.0, False)],
)
def test_a_share_of_the_evaluators_may_be_enough(served: str, percent: float, done: bool) -> None:
    reached = look(set_object(served=served), percent=percent)
    assert reached.done is done
    assert reached.level is not Reach.SERVED_BY_ALL


def test_no_evaluators_are_enough_where_none_are_required() -> None:
    reached = look(set_object(served="0/0"), allow_none=True)
    assert (reached.done, reached.level) == (True, Reach.DELIVERED)


def test_an_evaluator_that_does_not_serve_it_is_named() -> None:
    behind = {"name": "shop/pod-2", "since": "12:01"}
    assert look(set_object(served="1/9", laggards=[laggard(silent=True), behind])).laggards == (
        f"shop/pod-1 on node-1: silent since 2026-01-02T11:00:00Z, served {OLD}",
        "shop/pod-2: serves nothing (behind since 12:01)",
        "and 6 more",
    )


def test_a_set_with_remote_flags_is_served_once_all_serve_what_it_is_merged_to() -> None:
    assert look(set_object(digest=MIXED, localDigest=OWN_NEW), flag_set()).done
    assert not look(set_object(digest=MIXED, localDigest=OWN_OLD), flag_set()).done


def test_the_rollout_of_another_set_of_the_namespace_is_no_layer() -> None:
    other = rollout(
        candidate("Progressing", FIRST, "banner", **AT_STEP), spec={"flagSetRef": {"name": "cart"}}
    )
    (state,) = read_sets((set_object(), flag_set(), other), NOW)
    assert not state.layers


def test_without_the_right_to_read_rollouts_the_object_tells_of_them() -> None:
    step = entry("Exposed", FIRST, "banner", step="1/2", share="10")
    target = set_object(digest=MIXED, localDigest=OWN_NEW, rollouts=[step])
    (state,) = read_sets((target, flag_set()), NOW, unknown=("FlagRollout",))
    assert reach(state, ReachTarget(NEW)).message.endswith(
        "FlagRollout checkout: step 1/2, 10% of users get the new definition of banner"
    )
