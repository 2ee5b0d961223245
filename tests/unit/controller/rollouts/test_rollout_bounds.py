"""How many FlagRollouts of a flag set count, and which of them a change wakes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.delivery.object_bounds import ROLLOUTS as BOUND
from controller.rollouts.stage import ROLLOUTS
from controller.runtime.cache import Cache, Change
from controller.runtime.watches import keys_to_wake
from tests.statuses import find
from tests.worlds.objects import thing
from tests.worlds.rollouts import ClusterWorld, definition
from tests.worlds.stages import take_turn, written_by

if TYPE_CHECKING:
    from controller.api.meta import Resource

NEWEST: Final = f"r{BOUND.most:03}"


def rollout(name: str, flag_set: str = "checkout") -> Resource:
    return thing("FlagRollout", name, {"flagSetRef": {"name": flag_set}, "flags": ["pay"]})


async def test_beyond_the_bound_the_newest_rollout_is_stalled_until_another_is_deleted() -> None:
    world = ClusterWorld()
    world.commit({f"pay{number:03}": definition("off") for number in range(BOUND.most + 1)})
    for number in range(BOUND.most + 1):
        world.rollout(f"r{number:03}", flags=[f"pay{number:03}"])
    reconciler, cluster = world.reconcilers["FlagRollout"], world.cluster
    stalled = await take_turn(reconciler, cluster.the("FlagRollout", NEWEST), world.now)
    assert stalled.ready[:2] == ("False", "TooManyRollouts")
    assert stalled.message == (
        "flag set checkout has 100 older FlagRollouts, and no more count; delete one of them, or give one "
        "rollout the flags of several"
    )
    oldest = cluster.the("FlagRollout", "r000")
    assert find((await take_turn(reconciler, oldest, world.now)).settled.status, "Stalled") is None
    cluster.objects.forget(oldest.key)
    woken = keys_to_wake([ROLLOUTS], cluster.objects, Change(oldest, None))
    assert NEWEST in {key.name for key in woken}
    working = await take_turn(reconciler, cluster.the("FlagRollout", NEWEST), world.now)
    assert working.ready[:2] == ("True", "Idle")


def test_a_rollout_wakes_those_of_its_set_before_and_after_a_change_and_no_others() -> None:
    cache = Cache(ROLLOUTS.indexes)
    target = thing("FeatureFlagConfiguration", "flags", **written_by("checkout"))
    before = rollout("moved", "cart")
    after = replace(rollout("moved"), generation=2)
    rivals = [
        rollout("same"),
        rollout("by-name", "flags"),
        rollout("former", "cart"),
        rollout("other", "hero"),
    ]
    for resource in (target, after, *rivals):
        cache.put(resource)
    woken = {key.name for key in keys_to_wake([ROLLOUTS], cache, Change(before, after))}
    assert woken == {"moved", "same", "by-name", "former"}
