"""Which FlagOverrides a change wakes, and how many objects one reconcile looks at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from controller.api.flagset import LABEL
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.object_bounds import OVERRIDES, WRITTEN
from controller.rollouts.override_reconciler import FlagOverrideReconciler
from controller.rollouts.stage import FLAG_OVERRIDES
from controller.runtime.cache import Cache, Change
from controller.runtime.watches import indexes_of, keys_to_wake
from tests.worlds.flags import flag
from tests.worlds.objects import thing
from tests.worlds.stages import written_by

if TYPE_CHECKING:
    from controller.api.meta import Resource
    from controller.runtime.cache import Index

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FLAG = flag(variants={"on": 1, "off": 0})


def override(name: str, flag: str = "pay", flag_set: str = "checkout") -> Resource:
    spec = {"flagSetRef": {"name": flag_set}, "flag": flag, "variant": "off", "reason": "INC-1"}
    spec["expiresAt"] = "2026-01-01T02:00:00Z"
    return thing("FlagOverride", name, spec, creationTimestamp=f"2025-12-31T00:00:00Z-{name}")


TARGET = thing(
    "FeatureFlagConfiguration", "flags", {"flagSpec": {"flags": {"pay": FLAG}}}, **written_by("checkout")
)
SAME_BY_SET, SAME_BY_NAME, OTHER = override("a"), override("b", flag_set="flags"), override("c", "cart")
ROLLOUT = thing("FlagRollout", "r", {"flagSetRef": {"name": "checkout"}, "flags": ["pay"]})
PROMOTED = {"promoted": {"digest": "sha256:1", "shard": "s"}, "phase": "Promoting"}
RECEIPT = thing(
    "FlagReceipt",
    "receipt",
    {"configuration": "flags", "proxy": "p"},
    status={"hidden": [{"flag": "pay", "by": "FlagSet/shop/plat", "count": 3}]},
    ownerReferences=[{"uid": TARGET.uid}],
)
ALL = {"a", "b", "c"}


def woken(change: Change) -> set[str]:
    cache = Cache(FLAG_OVERRIDES.indexes)
    for resource in (TARGET, SAME_BY_SET, SAME_BY_NAME, OTHER, ROLLOUT):
        cache.put(resource)
    if change.after is not None:
        cache.put(change.after)
    keys = keys_to_wake([FLAG_OVERRIDES], cache, change)
    return {key.name for key in keys if key.kind == "FlagOverride"}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (Change(ROLLOUT, replace(ROLLOUT, status=PROMOTED)), ALL),
        (Change(TARGET, replace(TARGET, generation=2)), ALL),
        (Change(TARGET, replace(TARGET, status={"rollouts": [{"name": "r", "shard": "s"}]})), ALL),
        (Change(TARGET, replace(TARGET, status={"served": "1/2"})), set()),
        (Change(SAME_BY_SET, replace(SAME_BY_SET, generation=2)), {"a", "b"}),
        (Change(OTHER, replace(OTHER, generation=2)), {"c"}),
        (Change(None, RECEIPT), {"a", "b"}),
    ],
    ids=["promotion", "content", "rollouts of the object", "served", "rival", "another flag", "receipt"],
)
def test_an_override_is_woken_by_what_decides_whether_it_is_served(change: Change, names: set[str]) -> None:
    assert woken(change) == names


async def test_an_override_says_that_another_set_of_a_composition_hides_it() -> None:
    cache = Cache(FLAG_OVERRIDES.indexes)
    for resource in (TARGET, SAME_BY_SET, RECEIPT):
        cache.put(resource)
    result = await FlagOverrideReconciler(cache).reconcile(SAME_BY_SET, NOW)
    assert result.outcome.message == (
        'flag "pay" is "off": INC-1; in flags; hidden in evaluators that also follow FlagSet/shop/plat, '
        "whose flag comes first"
    )


@dataclass
class CountingCache(Cache):
    """Counts the objects that are found by an index."""

    looked_at: int = 0
    indexes: tuple[Index, ...] = field(default_factory=lambda: FLAG_OVERRIDES.indexes)

    def __post_init__(self) -> None:
        super().__init__(self.indexes)

    def find(self, index: Index, namespace: str, name: str) -> list[Resource]:
        """As in Cache."""
        listed = super().find(index, namespace, name)
        self.looked_at += len(listed)
        return listed


async def looked_at(number: int) -> int:
    """How many objects one reconcile finds among so many overrides and so many objects with the label."""
    cache = CountingCache()
    for place in range(number):
        labels = {LABEL: "checkout"}
        cache.put(thing("FeatureFlagConfiguration", f"o{place}", {"flagSpec": {"flags": {}}}, labels=labels))
        cache.put(override(f"f{place:04}", f"flag-{place}"))
    cache.put(TARGET)
    cache.looked_at = 0
    await FlagOverrideReconciler(cache).reconcile(override("f0000", "flag-0"), NOW)
    return cache.looked_at


async def test_one_reconcile_looks_at_the_overrides_of_its_flag_and_never_at_products() -> None:
    assert await looked_at(300) <= 3 * 300
    assert await looked_at(1000) <= 3 * 1000


async def test_objects_beyond_the_bound_of_a_flag_set_concern_no_override() -> None:
    cache = Cache(FLAG_OVERRIDES.indexes)
    cache.put(SAME_BY_SET)
    for place in range(WRITTEN.most + 1):
        stamp = {"creationTimestamp": f"2025-12-31T00:00:{place:02}Z"}
        flags = {"flagSpec": {"flags": {"pay": FLAG} if place == WRITTEN.most else {}}}
        meta = written_by("checkout") | stamp
        cache.put(thing("FeatureFlagConfiguration", f"o{place:02}", flags, **meta))
    result = await FlagOverrideReconciler(cache).reconcile(SAME_BY_SET, NOW)
    assert getattr(result.outcome, "reason", "") == "UnknownFlag"


def test_an_override_and_the_objects_beyond_the_bound_of_its_flag_set_wake_each_other_no_more() -> None:
    stages = [FLAG_OVERRIDES, CONFIGURATIONS]
    cache = Cache(indexes_of(stages))
    cache.put(SAME_BY_SET)
    written = []
    for place in range(WRITTEN.most + 5):
        stamp = {"creationTimestamp": f"2025-12-31T00:00:{place:02}Z"}
        meta = written_by("checkout") | stamp
        written.append(thing("FeatureFlagConfiguration", f"o{place:02}", {"flagSpec": {"flags": {}}}, **meta))
        cache.put(written[-1])
    woken = keys_to_wake(stages, cache, Change(None, SAME_BY_SET))
    counted = {f"o{place:02}" for place in range(WRITTEN.most)}
    assert {key.name for key in woken} - {SAME_BY_SET.name, "checkout"} == counted
    for resource, names in ((written[0], {"o00", "a"}), (written[-1], {written[-1].name})):
        changed = replace(resource, generation=2)
        cache.put(changed)
        assert {key.name for key in keys_to_wake(stages, cache, Change(resource, changed))} == names


def test_an_override_that_goes_wakes_the_one_that_takes_its_place_below_the_bound() -> None:
    cache = Cache(FLAG_OVERRIDES.indexes)
    overrides = [override(f"f{place:04}", f"flag-{place}") for place in range(OVERRIDES.most + 1)]
    for resource in overrides[1:]:
        cache.put(resource)
    keys = keys_to_wake([FLAG_OVERRIDES], cache, Change(overrides[0], None))
    assert {key.name for key in keys} == {f"f{OVERRIDES.most:04}"}
