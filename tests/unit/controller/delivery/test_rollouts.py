from __future__ import annotations

from typing import Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.delivery.overrides import BY_WRITER, target_of
from controller.delivery.rollouts import PromotedSets
from controller.runtime.cache import Cache
from tests.worlds.flags import flag
from tests.worlds.objects import thing
from tests.worlds.stages import written_by

TARGET = ObjectKey("FeatureFlagConfiguration", "shop", "web")


def shard(name: str, uid: str = "1", value: Any = 1) -> Resource:
    document = {"flags": {"a": flag(variants={"on": value})}, "$evaluators": {"nl": {"==": [1, 1]}}}
    return thing("FlagShard", name, {"digest": "d", "flagSpec": document}, uid=uid)


def test_promoted_definitions_are_parsed_once_and_kept_while_they_are_needed() -> None:
    objects = Cache()
    objects.put(shard("one"))
    sets = PromotedSets(objects.get)
    first = sets.of(TARGET, ["one", "missing"])
    assert first.keys() == {"one"}
    promoted = first["one"].flags["a"]
    assert dict(promoted.variants) == {"on": 1}
    assert set(first["one"].evaluators) == {"nl"}
    again = sets.of(TARGET, ["one"])["one"]
    assert again is first["one"]
    assert again.flags["a"] is promoted
    # A deleted one that is made again is another, whatever its name says.
    objects.put(shard("one", uid="2", value=2))
    assert sets.of(TARGET, ["one"])["one"].flags["a"].variants == {"on": 2}
    objects.put(shard("two"))
    later = sets.of(TARGET, ["two"])["two"]
    assert sets.of(TARGET, ["two", "one"])["two"] is later
    sets.forget(TARGET)
    assert sets.of(TARGET, ["two"])["two"] is not later


FFC, FF = "FeatureFlagConfiguration", "FeatureFlag"
NAMED, NAMED_FF, WRITTEN, WRITTEN_FF = (FFC, "web"), (FF, "web"), (FFC, "web-eu"), (FF, "web-eu")


@pytest.mark.parametrize(
    ("present", "target"),
    [
        ((), None),
        ((NAMED,), NAMED),
        ((NAMED_FF,), NAMED_FF),
        ((NAMED, NAMED_FF), NAMED),
        ((NAMED, NAMED_FF, WRITTEN_FF), WRITTEN_FF),
        ((WRITTEN_FF, WRITTEN), WRITTEN),
        ((NAMED, WRITTEN, WRITTEN_FF), WRITTEN),
    ],
    ids=str,
)
def test_a_rollout_is_of_what_the_flag_set_has_written_or_else_of_the_object_of_its_name(
    present: tuple[tuple[str, str], ...], target: tuple[str, str] | None
) -> None:
    objects = Cache([BY_WRITER])
    for kind, name in present:
        written = written_by("web") if name == "web-eu" else {}
        objects.put(thing(kind, name, **written))
    rollout = thing("FlagRollout", "r", {"flagSetRef": {"name": "web"}})
    referred = target_of(objects, rollout)
    assert (referred and (referred.key.kind, referred.name)) == target
