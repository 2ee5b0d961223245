"""A FlagSet with a remote provider: the object that it writes has the provider, and says who serves both."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.flagsets import CONFIGURATION, World, document, flag
from tests.worlds.stages import body_of

PROVIDER = {"type": "http", "url": "https://flags.example.com/a.json", "strategy": "override"}


@pytest.fixture
def world() -> World:
    made = World()
    made.commit("r1", document(own=flag()))
    return made


def written_provider(world: World) -> dict[str, Any]:
    return dict(world.cluster.the(CONFIGURATION, "checkout").spec["remoteFlagProvider"])


async def test_the_written_object_has_the_provider_as_the_flag_set_names_it(world: World) -> None:
    world.flag_set(remoteFlagProvider=PROVIDER)
    await world.look()
    assert written_provider(world) == PROVIDER
    assert (await world.look()).writes == []


async def test_the_provider_is_asked_with_the_rights_of_the_flag_sets_account(world: World) -> None:
    world.flag_set(remoteFlagProvider=PROVIDER, serviceAccountName="flags")
    await world.look()
    assert written_provider(world) == {"serviceAccountName": "flags", **PROVIDER}


async def test_a_provider_that_is_removed_from_the_flag_set_is_removed_from_the_object(world: World) -> None:
    world.flag_set(remoteFlagProvider=PROVIDER)
    await world.look()
    world.flag_set()
    await world.look()
    assert "remoteFlagProvider" not in world.cluster.the(CONFIGURATION, "checkout").spec


async def test_who_serves_the_merged_set_is_shown_for_the_flag_sets_own_flags(world: World) -> None:
    world.flag_set(remoteFlagProvider=PROVIDER)
    own = (await world.look()).status["digest"]
    body = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    world.cluster.put({**body, "status": {"digest": "sha256:merged", "localDigest": own, "served": "2/2"}})
    assert (await world.look()).status["served"] == "2/2"
