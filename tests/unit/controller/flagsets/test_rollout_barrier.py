"""A FlagSet whose flags are rolled out: no change is applied before the present definitions are known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.api.status import ROLLOUT_ACTIVE
from controller.flagsets.stage import FLAG_SETS
from controller.runtime.cache import Change
from controller.runtime.watches import keys_to_wake
from tests.statuses import find, read_condition
from tests.worlds.flagsets import CONFIGURATION, World, document, flag
from tests.worlds.stages import body_of

SPEC: dict[str, Any] = {"flagSetRef": {"name": "checkout"}, "flags": ["a*"], "steps": [{"share": 10}]}
OLD, NEW, DISABLED = flag(), flag("on"), flag(state="DISABLED")
STALLED = {
    "type": "Stalled",
    "status": "True",
    "reason": "Conflict",
    "message": "",
    "lastTransitionTime": "t",
}


@pytest.fixture
async def world() -> World:
    """A FlagSet with the flags a1, a2 and b, as they are."""
    made = World()
    made.commit("r1", document(a1=OLD, a2=DISABLED, b=OLD))
    made.flag_set()
    await made.look()
    return made


def roll_out(world: World, promoted: dict[str, Any] | None = None, **more: Any) -> Resource:
    """A FlagRollout, and what it has recorded."""
    status: dict[str, Any] = {name: more.pop(name, []) for name in ("conditions", "candidates")}
    if promoted is not None:
        shard = {"digest": "sha256:1", "flagSpec": json.loads(document(**promoted))}
        world.cluster.put({"kind": "FlagShard", "metadata": {"name": "p"}, "spec": shard})
        status["promoted"] = {"digest": "sha256:1", "shard": "p"}
    return world.cluster.put(
        {"kind": "FlagRollout", "metadata": {"name": "r"}, "spec": {**SPEC, **more}, "status": status}
    )


async def test_a_change_waits_until_the_present_definition_is_recorded(world: World) -> None:
    roll_out(world)
    world.commit("r2", document(a1=NEW, a2=DISABLED, b=NEW))
    waits = await world.look()
    assert waits.ready[:2] == ("False", "RolloutPending")
    assert 'FlagRollout r has not recorded the present definition of flag "a1" yet' in waits.ready[2]
    assert (waits.writes, waits.settled.requeue_after) == ([], 2.0)
    assert waits.status["lastAppliedRevision"] == "main@sha1:r1"
    roll_out(world, {"a1": OLD})
    assert (await world.look()).ready[0] == "True"
    assert world.defaults() == {"a1": "on", "a2": "off", "b": "on"}


async def test_a_change_waits_until_the_object_names_the_rollout(world: World) -> None:
    roll_out(world, {"a1": OLD})
    target = world.cluster.the(CONFIGURATION, "checkout")
    good = {**STALLED, "type": "Ready"}
    status = {"observedGeneration": target.generation, "conditions": [good]}
    world.cluster.set_status(target, status)
    world.commit("r2", document(a1=NEW, a2=DISABLED, b=NEW))
    waits = await world.look()
    assert (waits.ready[1], waits.writes) == ("RolloutPending", [])
    assert "FeatureFlagConfiguration checkout does not name FlagRollout r in its status yet" in waits.ready[2]
    entry = {"name": "r", "shard": "p", "phase": "Idle"}
    target = world.cluster.the(CONFIGURATION, "checkout")
    world.cluster.set_status(target, {**status, "rollouts": [entry]})
    assert (await world.look()).ready[0] == "True"
    assert world.defaults()["a1"] == "on"


@pytest.mark.parametrize(
    ("promoted", "changed", "waits"),
    [
        (None, {"b": NEW}, False),
        (None, {"a1": DISABLED}, False),
        (None, {"a1": flag(metadata={"owner": "shop"})}, False),
        (None, {"a3": NEW}, False),
        (None, {"a1": NEW}, True),
        ({"a2": DISABLED}, {"a1": NEW}, True),
        ({"a1": OLD}, {"a1": NEW}, False),
        ({"a1": flag("on", targeting={"if": [True, "on"]})}, {"a1": NEW}, False),
        ({"a1": OLD, "a2": OLD}, {"a2": NEW}, True),
        ({"a1": OLD, "a2": DISABLED}, {"a2": NEW}, False),
    ],
    ids=str,
)
async def test_only_a_change_that_would_be_exposed_waits(
    world: World, promoted: dict[str, Any] | None, changed: dict[str, Any], waits: bool
) -> None:
    roll_out(world, promoted)
    world.commit("r2", document(**{"a1": OLD, "a2": DISABLED, "b": OLD, **changed}))
    assert ((await world.look()).ready[1] == "RolloutPending") is waits


async def test_a_flag_that_was_disabled_while_it_was_rolled_out_goes_on_where_it_was(world: World) -> None:
    candidate = {"digest": "sha256:1", "flags": {"a2": "0a1b"}, "phase": "Paused", "reason": "FlagDisabled"}
    roll_out(world, {"a1": OLD, "a2": OLD}, candidates=[candidate])
    world.commit("r2", document(a1=OLD, a2=NEW, b=OLD))
    assert (await world.look()).ready[0] == "True"


@pytest.mark.parametrize(
    "more",
    [{"suspend": True}, {"conditions": [STALLED]}, {"steps": 3}, {"flagSetRef": {"name": "other"}}],
    ids=str,
)
async def test_a_rollout_that_does_not_work_holds_nothing_back(world: World, more: dict[str, Any]) -> None:
    roll_out(world, **more)
    world.commit("r2", document(a1=NEW, a2=DISABLED, b=OLD))
    assert (await world.look()).ready[0] == "True"


@pytest.mark.parametrize("reason", ["RolledBack", "VariantValueChanged"])
async def test_a_rollout_whose_candidate_stays_back_holds_what_it_has_not_recorded(
    world: World, reason: str
) -> None:
    roll_out(world, {"a2": DISABLED}, conditions=[{**STALLED, "reason": reason}])
    world.commit("r2", document(a1=NEW, a2=DISABLED, b=OLD))
    assert (await world.look()).ready[1] == "RolloutPending"


async def test_a_rollout_that_is_deleted_holds_nothing_back(world: World) -> None:
    roll_out(world)
    world.commit("r2", document(a1=NEW, a2=DISABLED, b=OLD))
    assert (await world.look()).ready[1] == "RolloutPending"
    world.cluster.remove("FlagRollout", "r")
    assert (await world.look()).ready[0] == "True"


async def test_what_a_rollout_records_wakes_the_flag_set_and_its_checks_do_not(world: World) -> None:
    def wakes(before: Resource, after: Resource) -> set[ObjectKey]:
        return keys_to_wake([FLAG_SETS], world.cluster.objects, Change(before, after))

    new = roll_out(world)
    recorded = roll_out(world, {"a1": OLD})
    checked = world.cluster.set_status(recorded, {**recorded.status, "furthest": "1/2 10%"})
    key = ObjectKey("FlagSet", "shop", "checkout")
    assert wakes(new, recorded) == {key}
    assert wakes(recorded, checked) == set()
    by_target = roll_out(world, {"a1": OLD}, flagSetRef={"name": "checkout"}, suspend=True)
    assert wakes(checked, by_target) == {key}


async def test_rollouts_of_the_written_object_are_a_condition_of_the_flag_set(world: World) -> None:
    body = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    active = {"type": ROLLOUT_ACTIVE, "status": "True", "reason": "FlagsRolledOut", "message": "r rolls out"}
    body["status"] = {"conditions": [{**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    before = world.cluster.the(CONFIGURATION, "checkout")
    world.cluster.put(body)
    condition = find((await world.look()).status, ROLLOUT_ACTIVE)
    assert condition is not None
    assert (condition["reason"], condition["message"]) == ("FlagsRolledOut", "r rolls out")
    keys = keys_to_wake(
        [FLAG_SETS], world.cluster.objects, Change(before, world.cluster.the(CONFIGURATION, "checkout"))
    )
    assert keys == {ObjectKey("FlagSet", "shop", "checkout")}


async def test_who_serves_the_commit_before_says_nothing_of_the_next(world: World) -> None:
    """A status of the commit would be green at the first step, before the object's status tells of that."""
    target = world.cluster.the(CONFIGURATION, "checkout")
    served = {**STALLED, "type": "Propagated", "reason": "Served", "message": "3 of 3 evaluators serve it"}
    digest = (await world.look()).status["digest"]
    status = {"observedGeneration": target.generation, "digest": digest, "conditions": [served]}
    world.cluster.set_status(target, status)
    before = await world.look()
    world.cluster.set_status(world.cluster.the("FlagSet", "checkout"), before.status)
    assert read_condition(before.status, "Propagated")[0] == "True"
    world.commit("r2", document(a1=NEW, a2=DISABLED, b=OLD))
    applied = await world.look()
    assert applied.ready[0] == "True"
    assert read_condition(applied.status, "Propagated")[:2] == ("False", "Progressing")
