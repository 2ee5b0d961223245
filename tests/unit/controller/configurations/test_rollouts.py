from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagrollout import PROMOTE
from controller.api.flagshard import finder
from controller.api.status import READY, ROLLOUT_ACTIVE
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.delivery.rollouts import PROGRESS_INDEXES, PromotedSets, progress_of
from controller.proxy.building import EncodedFlagSet, build
from controller.runtime.cache import Cache, Change
from controller.runtime.result import settle
from controller.runtime.watches import indexes_of, keys_to_wake
from evaluator.flags.candidates import candidate_digest, changed_flags
from tests.worlds.flags import flag_set_of
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHARD = "r-promoted-1"


def flags(default: str) -> dict[str, Any]:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
    return {"flags": {"a": flag, "b": flag | {"defaultVariant": "on"}}}


def configuration(default: str = "on", kind: str = "FeatureFlagConfiguration", **more: Any) -> Resource:
    return thing(kind, "web", {"flagSpec": flags(default)}, **more)


def changes(default: str = "on") -> dict[str, str]:
    desired, promoted = (flag_set_of(flags(one)) for one in (default, "off"))
    return dict(changed_flags(desired, promoted, ("a*",)))


CHANGES = changes()
CANDIDATE = candidate_digest(CHANGES)
HALF: dict[str, Any] = {"phase": "Progressing", "step": 1, "stepText": "2/4", "share": 12.5, "salt": "r/1"}
NAMED = {"name": "r", "shard": SHARD, "candidate": CANDIDATE, "flags": CHANGES}
EXPOSED = {**NAMED, "phase": "Exposed", "step": "2/4", "share": "12.5"}
ABANDONED = {**NAMED, "phase": "Abandoned"}
PROMOTED = {"digest": "sha256:1", "shard": SHARD}


def rollout(*candidates: dict[str, Any], promoted: dict[str, Any] | None = PROMOTED) -> Resource:
    """A FlagRollout with candidates, each of the change of `a` unless it says otherwise."""
    spec = {"flagSetRef": {"name": "web"}, "flags": ["a*"], "steps": [{"share": 10}]}
    listed = [{"digest": CANDIDATE, "flags": CHANGES, **candidate} for candidate in candidates]
    status = {"phase": "Progressing", "promoted": promoted, "candidates": listed}
    return thing("FlagRollout", "r", spec, status=status)


def world(*resources: Resource) -> Cache:
    objects = Cache(PROGRESS_INDEXES)
    promoted = {"flags": {"a": flags("off")["flags"]["a"]}}
    for one in (thing("FlagShard", SHARD, {"digest": "d", "flagSpec": promoted}), *resources):
        objects.put(one)
    return objects


async def reconcile(target: Resource, *resources: Resource) -> Resource:
    """The object with the status that is written."""
    result = await ConfigurationReconciler(world(*resources), ClaimIndex()).reconcile(target, NOW)
    return replace(target, status=settle(target, result, NOW).status)


def condition_of(target: Resource) -> tuple[str, str]:
    condition = ConfigurationStatus.of(target).condition(ROLLOUT_ACTIVE)
    return condition.reason, condition.message


@pytest.mark.parametrize(
    ("status", "entry", "text"),
    [
        ({"phase": "Pending"}, {"phase": "Held"}, "FlagRollout r: nobody gets the new definition of a"),
        ({"phase": "Failed"}, {"phase": "Held"}, "FlagRollout r: nobody gets the new definition of a"),
        (HALF, EXPOSED, "FlagRollout r: step 2/4, 12.5% of users get the new definition of a"),
        (
            {**HALF, "phase": "Promoting", "share": 100},
            {"phase": "Everyone", "step": "2/4", "share": "100"},
            "FlagRollout r: everybody is to get the new definition of a",
        ),
    ],
)
async def test_the_status_says_what_its_digest_has_of_a_rollout(
    status: dict[str, Any], entry: dict[str, Any], text: str
) -> None:
    target, order = configuration(), rollout(status)
    written = await reconcile(target, order)
    assert written.status["rollouts"] == [{**NAMED, **entry}]
    reason, message = condition_of(written)
    assert (reason, message.startswith(text)) == ("FlagsRolledOut", True)
    objects = world(order)
    progress = progress_of(objects, target, NOW.timestamp(), PromotedSets(objects.get))
    sent = build(target, finder(objects.get, "shop"), None, progress)
    assert isinstance(sent, EncodedFlagSet)
    assert sent.digest == written.status["digest"]


async def test_where_nothing_differs_the_status_says_so_and_there_is_no_condition() -> None:
    written = await reconcile(configuration("off"), rollout())
    assert written.status["rollouts"] == [{"name": "r", "shard": SHARD, "phase": "Idle"}]
    assert condition_of(written) == ("", "")
    plain = await reconcile(configuration("off"))
    assert "rollouts" not in plain.status
    assert plain.status["digest"] == written.status["digest"]


async def test_the_promoted_definition_outlives_its_rollout_until_the_next_change() -> None:
    under_way = await reconcile(configuration(), rollout(HALF))
    gone = await reconcile(under_way)
    assert gone.status["rollouts"] == [ABANDONED]
    assert (
        gone.status["digest"]
        == (await reconcile(configuration(), rollout({"phase": "Failed"}))).status["digest"]
    )
    assert condition_of(gone)[0] == "RolloutAbandoned"
    result = await ConfigurationReconciler(world(), ClaimIndex()).reconcile(under_way, NOW)
    assert [event.reason for event in result.events] == ["RolloutAbandoned"]
    again = await ConfigurationReconciler(world(), ClaimIndex()).reconcile(gone, NOW)
    assert not again.events
    # A change of metadata, or of another flag, is none.
    document = flags("on")
    document["flags"]["a"]["metadata"] = {"owner": "shop"}
    document["flags"]["b"]["defaultVariant"] = "off"
    kept = await reconcile(replace(gone, spec={"flagSpec": document}, generation=2))
    assert kept.status["rollouts"] == [ABANDONED]
    document["flags"]["a"]["targeting"] = "on"
    changed = await reconcile(replace(gone, spec={"flagSpec": document}, generation=3))
    assert "rollouts" not in changed.status
    assert condition_of(changed) == ("", "")


TWO = {"flags": {"a": flags("on")["flags"]["a"], "ab": flags("on")["flags"]["a"]}}
OLD_TWO = {"flags": {"a": flags("off")["flags"]["a"], "ab": flags("off")["flags"]["a"]}}


def two_flags(document: dict[str, Any] = TWO) -> dict[str, str]:
    desired, promoted = (flag_set_of(one) for one in (document, OLD_TWO))
    return dict(changed_flags(desired, promoted, ("a*",)))


def world_of_two(*resources: Resource) -> Cache:
    shard = thing("FlagShard", SHARD, {"digest": "d", "flagSpec": OLD_TWO})
    return world(shard, *resources)


async def reconcile_two(document: dict[str, Any], *resources: Resource, **more: Any) -> Resource:
    """The object with two flags, and the status that is written."""
    target = thing("FeatureFlagConfiguration", "web", {"flagSpec": document}, **more)
    result = await ConfigurationReconciler(world_of_two(*resources), ClaimIndex()).reconcile(target, NOW)
    return replace(target, status=settle(target, result, NOW).status)


async def test_each_candidate_has_an_entry_and_so_have_flags_that_no_candidate_has_yet() -> None:
    changed = two_flags()
    first = {"digest": "sha256:1", "flags": {"a": changed["a"]}, **HALF}
    second = {"digest": "sha256:2", "flags": {"ab": changed["ab"]}, **HALF, "stepText": "1/4", "share": 1}
    both = await reconcile_two(TWO, rollout(first, second))
    assert [(entry["candidate"], entry["flags"], entry["share"]) for entry in both.status["rollouts"]] == [
        ("sha256:1", {"a": changed["a"]}, "12.5"),
        ("sha256:2", {"ab": changed["ab"]}, "1"),
    ]
    assert condition_of(both)[1].startswith(
        "FlagRollout r: step 2/4, 12.5% of users get the new definition of a; "
        "FlagRollout r: step 1/4, 1% of users get the new definition of ab. "
    )
    one = await reconcile_two(TWO, rollout(first))
    assert one.status["rollouts"][1] == {
        "name": "r",
        "shard": SHARD,
        "flags": {"ab": changed["ab"]},
        "phase": "Held",
    }


async def test_a_deleted_rollout_holds_each_flag_until_that_flag_changes() -> None:
    changed = two_flags()
    under_way = await reconcile_two(TWO, rollout({"digest": CANDIDATE, "flags": changed, **HALF}))
    gone = await reconcile_two(TWO, status=under_way.status)
    assert [entry["flags"] for entry in gone.status["rollouts"]] == [changed]
    edited = {"flags": {**TWO["flags"], "a": {**TWO["flags"]["a"], "targeting": "on"}}}
    other = await reconcile_two(edited, status=gone.status)
    assert [(entry["phase"], entry["flags"]) for entry in other.status["rollouts"]] == [
        ("Abandoned", {"ab": changed["ab"]})
    ]
    # A flag that is away for a while has not changed.
    away = await reconcile_two({"flags": {"a": edited["flags"]["a"]}}, status=other.status)
    assert away.status["rollouts"] == other.status["rollouts"]


async def test_a_person_promotes_what_a_deleted_rollout_has_held_back() -> None:
    gone = await reconcile(await reconcile(configuration(), rollout(HALF)))
    other = await reconcile(replace(gone, annotations={PROMOTE: "sha256:other"}))
    assert other.status["rollouts"] == [ABANDONED]
    short = CANDIDATE.removeprefix("sha256:")[:12]
    promoted = await reconcile(replace(gone, annotations={PROMOTE: f"{'0' * 12},{short}"}))
    assert "rollouts" not in promoted.status
    assert promoted.status["digest"] == (await reconcile(configuration())).status["digest"]


async def test_a_new_rollout_of_the_name_of_one_that_is_gone_exposes_nobody() -> None:
    gone = await reconcile(await reconcile(configuration(), rollout(HALF)))
    new = await reconcile(gone, rollout(promoted=None))
    assert new.status["rollouts"] == [ABANDONED]
    follows = await reconcile(gone, rollout({"phase": "Pending"}))
    assert [entry["phase"] for entry in follows.status["rollouts"]] == ["Held"]


async def test_without_the_promoted_definitions_the_status_waits_and_keeps_what_it_says() -> None:
    under_way = await reconcile(configuration(), rollout(HALF))
    order = rollout(HALF, promoted={"digest": "sha256:2", "shard": "missing"})
    waits = await reconcile(under_way, order)
    assert ConfigurationStatus.of(waits).condition(READY).reason == "ShardsMissing"
    assert waits.status["rollouts"] == [EXPOSED]


SPLIT = {"fractional": [["on", 50], ["off", 50]]}


def pinned_rollout(generation: str | None, *candidates: dict[str, Any]) -> tuple[dict[str, Any], Resource]:
    """A document with a split, whose metadata pins a generation, and a FlagRollout of another flag."""
    document = flags("on")
    document["flags"]["b"]["targeting"] = SPLIT
    metadata = {} if generation is None else {"metadata": {"flagstaff.dev/bucketing": generation}}
    return {**document, **metadata}, rollout(*candidates)


async def test_a_change_of_the_generation_waits_for_candidates_and_says_how_many_users_it_moves() -> None:
    document, order = pinned_rollout("v3", {**HALF, "bucketing": "v2"})
    waits = await reconcile(replace(configuration(), spec={"flagSpec": document}), order)
    assert waits.status["bucketing"] == "v2"
    message = condition_of(waits)[1]
    assert "The change of bucketing from v2 to v3: " in message
    assert "of 300 sample users get another variant of a flag" in message
    assert message.endswith("It waits until the exposed candidates have ended")
    away = {key: flag for key, flag in document["flags"].items() if key != "a"}
    deleted = await reconcile(replace(waits, spec={"flagSpec": {**document, "flags": away}}), order)
    assert condition_of(deleted)[1].startswith(
        "FlagRollout r is at a step of a, absent or disabled in Git. The change of bucketing "
    )
    result = await ConfigurationReconciler(world(rollout()), ClaimIndex()).reconcile(waits, NOW)
    (event,) = [event for event in result.events if event.reason == "BucketingChanged"]
    assert event.message.startswith("bucketing changed from v2 to v3: ")
    applied = await reconcile(waits, rollout())
    assert applied.status["bucketing"] == "v3"
    again = await ConfigurationReconciler(world(rollout()), ClaimIndex()).reconcile(applied, NOW)
    assert "BucketingChanged" not in {event.reason for event in again.events}


@pytest.mark.parametrize("generation", [None, "v2", "v3"])
async def test_a_set_in_a_rollout_says_which_generation_is_assumed_where_it_pins_none(
    generation: str | None,
) -> None:
    document, order = pinned_rollout(generation, {**HALF, "bucketing": generation})
    written = await reconcile(replace(configuration(), spec={"flagSpec": document}), order)
    assert ("bucketing v2, which is assumed as the set pins none" in condition_of(written)[1]) is (
        generation is None
    )


async def test_a_flag_that_was_disabled_before_says_what_users_outside_the_step_get() -> None:
    off = flags("off")["flags"]["a"] | {"state": "DISABLED"}
    shard = thing("FlagShard", SHARD, {"digest": "d", "flagSpec": {"flags": {"a": off}}})
    written = await reconcile(configuration(), shard, rollout(HALF))
    note = 'Users outside the step get the application\'s default of flag "a", disabled until this change'
    assert note in condition_of(written)[1]
    plain = await reconcile(configuration(), rollout(HALF))
    assert "application's default" not in condition_of(plain)[1]


async def test_a_feature_flag_says_that_flagd_serves_what_git_says() -> None:
    written = await reconcile(configuration(kind="FeatureFlag"), rollout(HALF))
    assert "Flagd and OpenFeature Operator read this object directly" in condition_of(written)[1]


@pytest.mark.parametrize(
    ("before", "after", "wakes"),
    [
        (None, rollout(), True),
        (rollout(), rollout(HALF), True),
        (rollout(HALF), rollout({**HALF, "lastCheckAt": "2026-01-01T00:00:00Z", "verdict": "Pass"}), False),
        (rollout(HALF), replace(rollout(HALF), deleting=True), True),
        (None, thing("FlagShard", SHARD, {"digest": "d"}), True),
        (None, thing("FlagShard", "another", {"digest": "d"}), False),
        (configuration(), replace(configuration(), annotations={PROMOTE: CANDIDATE}), True),
    ],
)
def test_what_is_published_wakes_the_objects_with_the_flags(
    before: Resource | None, after: Resource, wakes: bool
) -> None:
    objects = Cache(indexes_of([CONFIGURATIONS]))
    for one in (configuration(status={"rollouts": [ABANDONED]}), after):
        objects.put(one)
    keys = keys_to_wake([CONFIGURATIONS], objects, Change(before, after))
    assert keys == ({configuration().key} if wakes else set())
