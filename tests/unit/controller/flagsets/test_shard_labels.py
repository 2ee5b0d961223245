"""What a FlagSet writes belongs to the shard of the FlagSet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from controller.api.meta import SHARD_KEY
from controller.runtime.shards import Shard
from tests.worlds.flagsets import CONFIGURATION, World, document, flag
from tests.worlds.stages import body_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.fixture
async def world() -> World:
    """A FlagSet whose first revision is applied by a controller that selects nothing."""
    made = World()
    made.commit("r1", document(a=flag(), b=flag()))
    made.flag_set()
    assert (await made.look()).reason == "Succeeded"
    return made


def give(world: World, shard: str, **spec: str) -> None:
    """Give the FlagSet to a shard, whose controller has just started; empty: to the default controller."""
    body = body_of(world.cluster.the("FlagSet", "checkout"))
    body["metadata"]["labels"] = {SHARD_KEY: shard} if shard else {}
    body["spec"] |= spec
    world.cluster.put(body)
    selector = f"{SHARD_KEY}={shard}" if shard else f"!{SHARD_KEY}"
    world.restart()
    world.reconciler = replace(world.reconciler, shard=Shard.of(selector, ()))


def labels(world: World) -> Mapping[str, str]:
    return world.cluster.the(CONFIGURATION, "checkout").labels


@pytest.mark.parametrize("policy", ["Correct", "Warn"])
async def test_what_is_delivered_follows_its_flag_set_to_another_shard_without_a_word(
    world: World, policy: str
) -> None:
    assert SHARD_KEY not in labels(world)
    served = world.document()
    for shard in ("shard1", "shard2", ""):
        give(world, shard, driftPolicy=policy)
        seen = await world.look()
        assert (len(seen.writes), seen.said) == (1, [])
        assert labels(world).get(SHARD_KEY, "") == shard
        assert world.document() == served
        assert (await world.look()).writes == []


async def test_a_label_that_a_hand_changed_is_put_right(world: World) -> None:
    give(world, "shard1")
    await world.look()
    body = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    body["metadata"]["labels"][SHARD_KEY] = "shard2"
    world.cluster.put(body)
    await world.look()
    assert labels(world)[SHARD_KEY] == "shard1"


async def test_a_new_revision_keeps_the_label(world: World) -> None:
    give(world, "shard1")
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    assert labels(world)[SHARD_KEY] == "shard1"
    assert world.defaults()["a"] == "on"
