from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.api.fields import read
from controller.api.flagset import KIND, FlagSetSpec
from controller.flagsets.applied import LastDelivered, last_applied, objects_written_by, read_back
from tests.worlds.flagsets import CONFIGURATION, World, document, flag
from tests.worlds.stages import body_of

if TYPE_CHECKING:
    from controller.api.meta import Resource


@pytest.fixture
async def world() -> World:
    made = World()
    made.commit("r1", document(a=flag(), b=flag()))
    made.flag_set(target={"kinds": [CONFIGURATION, "FeatureFlag"]})
    await made.look()
    return made


def find_written(world: World) -> list[Resource]:
    resource = world.cluster.the(KIND, "checkout")
    return objects_written_by(resource, read(FlagSetSpec, resource.spec), world.cluster.objects)


def last(world: World) -> LastDelivered | None:
    return last_applied(find_written(world), world.cluster.objects)


def test_what_was_written_is_read_back_with_its_provenance(world: World) -> None:
    good = last(world)
    assert good is not None
    assert set(good.flag_set.flags) == {"a", "b"}
    assert good.flag_set.metadata["flagstaff.dev/revision"] == "main@sha1:r1"
    assert not good.edited


def test_the_configuration_under_today_s_name_comes_first(world: World) -> None:
    older = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    older["metadata"]["name"] = "a-name-of-before"
    world.cluster.put(older)
    objects = [(each.key.kind, each.name) for each in find_written(world)]
    assert objects == [
        (CONFIGURATION, "checkout"),
        ("FeatureFlag", "checkout"),
        (CONFIGURATION, "a-name-of-before"),
    ]


def test_an_edited_object_is_passed_over_for_one_that_is_as_it_was_written(world: World) -> None:
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec={"flags": {}})
    good = last(world)
    assert good is not None
    assert (set(good.flag_set.flags), good.edited) == ({"a", "b"}, "")


@pytest.mark.parametrize(
    "spec",
    [
        {"flags": {"a": flag("on")}},
        {"flags": {"a": flag()}, "metadata": {"flagstaff.dev/digest": "sha256:0"}},
        {"flags": {"a": flag("nothing of the kind")}},
    ],
    ids=["no digest", "another digest", "a flag that is bad"],
)
def test_an_object_whose_digest_is_not_its_content_s_was_edited(world: World, spec: dict[str, Any]) -> None:
    world.cluster.remove("FeatureFlag", "checkout")
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec=spec)
    good = last(world)
    assert good is not None
    assert good.edited == "FeatureFlagConfiguration checkout"


def test_an_object_of_another_writer_is_not_read_back(world: World) -> None:
    for kind in (CONFIGURATION, "FeatureFlag"):
        body = body_of(world.cluster.the(kind, "checkout"))
        body["metadata"]["labels"] = {"flagstaff.dev/flagset": "another"}
        world.cluster.put(body)
    assert last(world) is None


@pytest.mark.parametrize(
    "spec",
    [{}, {"flagSpec": {"flags": 7}}, {"shards": [{"name": "x", "digest": "y"}]}, {"shards": 7}],
    ids=["nothing", "no flags", "no such shard", "odd shards"],
)
def test_what_cannot_be_read_whole_is_not_read_back(world: World, spec: dict[str, Any]) -> None:
    body = body_of(world.cluster.the(CONFIGURATION, "checkout")) | {"spec": spec}
    assert read_back(world.cluster.put(body), world.cluster.objects) is None
