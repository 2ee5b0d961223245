"""A set that is larger than an object: written, replaced, swept, read back."""

from __future__ import annotations

import pytest

from controller.api.featureflagconfiguration import MissingShardsError, flag_document
from controller.flagsets.delivery import GRACE
from controller.runtime.setbacks import Failed
from tests.worlds.flagsets import BROKEN, CONFIGURATION, World, document, flag

INDEX = f"apply {CONFIGURATION}/checkout"
NOTE = {"note": "x" * 20_000}
MANY = {f"flag-{number:02}": flag(metadata=NOTE) for number in range(80)}


@pytest.fixture
async def world() -> World:
    """A FlagSet of 80 large flags, applied."""
    made = World()
    made.commit("r1", document(**MANY))
    made.flag_set(interval="10m")
    await made.look()
    return made


async def test_the_index_is_written_after_all_of_its_shards() -> None:
    world = World()
    world.commit("r1", document(**MANY))
    world.flag_set()
    seen = await world.look()
    assert seen.writes[-1] == INDEX
    shards = world.cluster.names("FlagShard")
    assert sorted(seen.writes[:-1]) == [f"apply FlagShard/{name}" for name in shards]
    assert seen.status["target"] == [{"kind": CONFIGURATION, "name": "checkout", "shards": len(shards)}]
    assert (seen.ready[0], seen.status["flags"]) == ("True", 80)


async def test_a_restart_reads_the_whole_set_back_and_writes_nothing(world: World) -> None:
    world.restart()
    seen = await world.look()
    assert (seen.writes, seen.status_written) == ([], False)


async def test_a_flag_of_a_sharded_set_is_held_after_a_restart(world: World) -> None:
    world.commit("r2", document(**MANY | {"flag-40": BROKEN}))
    world.restart()
    seen = await world.look()
    assert seen.status["held"] == [{"name": "flag-40", "revision": "main@sha1:r1"}]
    assert seen.status["flags"] == 80


async def test_a_set_that_is_half_written_is_not_in_force(world: World) -> None:
    world.cluster.failing[INDEX] = Failed("ApiServerFailed", "it is away")
    world.commit("r2", document(**{key: flag("on", metadata=NOTE) for key in MANY}))
    seen = await world.look()
    assert (seen.result, seen.status["lastAppliedRevision"]) == ("Failed", "main@sha1:r1")
    served = flag_document(
        world.cluster.the(CONFIGURATION, "checkout"), lambda name: world.cluster.the("FlagShard", name)
    )
    assert b'"defaultVariant":"on"' not in served.content
    world.cluster.failing.clear()
    assert (await world.look()).writes == [INDEX]


async def test_old_shards_go_after_a_grace_time_and_the_next_look_is_then(world: World) -> None:
    old = set(world.cluster.names("FlagShard"))
    world.commit("r2", document(**MANY | {"flag-40": flag("on", metadata=NOTE)}))
    seen = await world.look()
    assert seen.settled.requeue_after == pytest.approx(GRACE)
    outdated = old - set(world.document_shards())
    assert outdated <= set(world.cluster.names("FlagShard"))
    assert (await world.look(after=GRACE - 1)).writes == []
    seen = await world.look(after=1)
    assert sorted(seen.writes) == [f"delete FlagShard/{name}" for name in sorted(outdated)]
    assert seen.settled.requeue_after == pytest.approx(600)


async def test_a_clock_that_is_set_back_keeps_old_shards_for_a_grace_time_and_no_longer(world: World) -> None:
    world.commit("r2", document(**MANY | {"flag-40": flag("on", metadata=NOTE)}))
    await world.look()
    assert (await world.look(after=-100 * 86_400)).settled.requeue_after == pytest.approx(GRACE)
    await world.look(after=GRACE)
    assert world.cluster.names("FlagShard") == sorted(world.document_shards())


async def test_of_shards_that_are_outdated_nothing_is_kept_in_memory(world: World) -> None:
    for number in range(1, 4):
        world.commit(f"r{number + 1}", document(**MANY | {f"flag-{number}0": flag("on")}))
        await world.look()
    (memory,) = world.reconciler.memory.values()
    assert {key.name for key in memory.state.taken} <= {*world.document_shards(), "checkout"}


async def test_old_shards_go_while_a_flag_is_held_too(world: World) -> None:
    world.commit("r2", document(**MANY | {"flag-00": BROKEN, "flag-40": flag("on")}))
    seen = await world.look()
    assert seen.reason == "PartiallyApplied"
    assert seen.settled.requeue_after == pytest.approx(GRACE)
    await world.look(after=GRACE)
    assert world.cluster.names("FlagShard") == sorted(world.document_shards())


async def test_after_a_restart_the_grace_time_begins_anew(world: World) -> None:
    world.commit("r2", document(**MANY | {"flag-40": flag("on")}))
    await world.look()
    world.restart()
    assert (await world.look(after=GRACE)).writes == []
    await world.look(after=GRACE)
    assert world.cluster.names("FlagShard") == sorted(world.document_shards())


async def test_a_shard_that_is_wanted_again_within_its_grace_time_stays(world: World) -> None:
    world.commit("r2", document(**MANY | {"flag-40": flag("on")}))
    await world.look()
    world.commit("r1", document(**MANY))
    await world.look(after=GRACE / 2)
    await world.look(after=GRACE)
    assert world.cluster.names("FlagShard") == sorted(world.document_shards())


async def test_a_set_that_shrinks_is_one_object_again(world: World) -> None:
    world.flag_set(pruneGuard=False)
    await world.look()
    world.commit("r2", document(a=flag()))
    seen = await world.look()
    assert (seen.writes, world.defaults()) == ([INDEX], {"a": "off"})
    assert seen.status["target"] == [{"kind": CONFIGURATION, "name": "checkout"}]
    await world.look(after=GRACE)
    assert world.cluster.names("FlagShard") == []


@pytest.mark.parametrize("how", ["edited", "removed"])
async def test_drift_of_a_shard_is_corrected_and_reported_once(world: World, how: str) -> None:
    first, second, *_ = world.cluster.names("FlagShard")
    for name in (first, second):
        if how == "edited":
            world.cluster.edit("FlagShard", name, flagSpec={"flags": {}})
        else:
            world.cluster.remove("FlagShard", name)
    seen = await world.look()
    assert sorted(seen.writes) == [f"apply FlagShard/{first}", f"apply FlagShard/{second}"]
    assert len(seen.said) == 1
    assert " (and 1 more) was " in seen.said[0]


async def test_a_shard_that_was_edited_before_a_restart_is_not_used_as_last_good(world: World) -> None:
    name = world.cluster.names("FlagShard")[0]
    part = world.cluster.the("FlagShard", name).spec["flagSpec"]
    world.cluster.edit("FlagShard", name, flagSpec={**part, "flags": {"more": flag()}})
    world.commit("r2", "{")
    world.restart()
    assert (await world.look()).reason == "LastGoodUnknown"


async def test_a_set_of_which_a_shard_is_gone_is_not_read_back_in_part(world: World) -> None:
    name = world.cluster.names("FlagShard")[0]
    world.cluster.remove("FlagShard", name)
    with pytest.raises(MissingShardsError, match=f"FlagShard {name} is not there yet"):
        flag_document(
            world.cluster.the(CONFIGURATION, "checkout"),
            lambda other: None if other == name else world.cluster.the("FlagShard", other),
        )
    world.commit("r2", "{")
    world.restart()
    assert (await world.look()).writes == []


async def test_a_feature_flag_that_cannot_be_sharded_keeps_what_was_there() -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.flag_set(target={"kinds": [CONFIGURATION, "FeatureFlag"]}, pruneGuard=False)
    await world.look()
    world.commit("r2", document(**MANY))
    seen = await world.look()
    assert (seen.writes, seen.result, seen.reason) == ([], "Stalled", "TooLarge")
    assert "take FeatureFlag out of spec.target.kinds" in seen.message
    assert seen.message.endswith("main@sha1:r1 stays served; push a correction, or revert the commit")
    world.cluster.remove("FeatureFlag", "checkout")
    assert (await world.look()).writes == ["apply FeatureFlag/checkout"]


async def test_a_first_set_that_is_too_large_for_a_feature_flag_writes_nothing() -> None:
    world = World()
    world.commit("r1", document(**MANY))
    world.flag_set(target={"kinds": ["FeatureFlag"]})
    seen = await world.look()
    assert (seen.writes, seen.reason) == ([], "TooLarge")
    assert "Nothing has been applied yet" in seen.message


async def test_asking_a_sharded_set_for_a_feature_flag_too_changes_nothing(world: World) -> None:
    world.flag_set(target={"kinds": [CONFIGURATION, "FeatureFlag"]})
    seen = await world.look()
    assert (seen.writes, seen.reason) == ([], "TooLarge")
