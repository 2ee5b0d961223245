"""A change wakes the loops that it concerns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from controller.api.kinds import FEATURE_FLAG
from controller.api.meta import ObjectKey, Resource
from controller.delivery.claims import ClaimIndex
from controller.runtime.cache import Cache
from controller.runtime.watches import Dispatcher, Reconciles

if TYPE_CHECKING:
    from controller.runtime.loop import Loop

FLAGS, CONFIGURATION = (ObjectKey(kind, "shop", "x") for kind in ("FeatureFlag", "FeatureFlagConfiguration"))


@dataclass
class Woken:
    """A loop that is woken."""

    keys: list[ObjectKey] = field(default_factory=list)
    deleted: list[ObjectKey] = field(default_factory=list)

    def wake(self, key: ObjectKey) -> None:
        self.keys.append(key)

    def forget(self, key: ObjectKey) -> None:
        self.deleted.append(key)


def dispatcher_of(cache: Cache, loop: Woken) -> Dispatcher:
    claims, loops = ClaimIndex(), cast("dict[str, Loop]", {FLAGS.kind: loop})
    return Dispatcher(
        cache,
        (Reconciles(FEATURE_FLAG),),
        loops,
        (lambda change: claims.follow(change.before, change.after).rivals,),
    )


def test_an_object_that_comes_or_goes_wakes_the_one_of_the_other_kind_that_has_its_name() -> None:
    cache, flags = Cache(), Woken()
    dispatcher_of(cache, flags)
    cache.learn(Resource(FLAGS, "f", 1, "1"))
    assert flags.keys == [FLAGS]
    flags.keys.clear()
    cache.learn(Resource(CONFIGURATION, "c", 1, "2"))
    cache.learn(Resource(CONFIGURATION, "c", 1, "3", status={"flags": 1}))
    assert flags.keys == [FLAGS]
    cache.forget(CONFIGURATION)
    assert flags.keys == [FLAGS] * 2


def test_the_loop_of_a_deleted_object_is_woken() -> None:
    cache, flags = Cache(), Woken()
    dispatcher_of(cache, flags)
    cache.learn(Resource(FLAGS, "f", 1, "1"))
    cache.forget(FLAGS)
    assert flags.deleted == [FLAGS]


def test_a_new_leader_looks_at_all_that_has_a_loop() -> None:
    cache, flags = Cache(), Woken()
    cache.learn(Resource(FLAGS, "f", 1, "1"))
    cache.learn(Resource(CONFIGURATION, "c", 1, "2"))
    dispatcher_of(cache, flags).wake_all()
    assert flags.keys == [FLAGS]
