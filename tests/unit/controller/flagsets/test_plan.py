from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.api.meta import Resource
from controller.flagsets.delivery import Plan, Taken, matches, plan

OWNER = {"kind": "FlagSet", "uid": "u1", "name": "checkout", "controller": True}


def manifest(kind: str = "FeatureFlagConfiguration", name: str = "x", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "core.openfeature.dev/v1beta1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"flagstaff.dev/flagset": "checkout"},
            "annotations": {"flagstaff.dev/revision": "r1"},
            "ownerReferences": [OWNER],
        },
        "spec": spec or {"flagSpec": {"flags": {}}},
    }


def index(name: str, *shards: str) -> dict[str, Any]:
    return manifest(name=name, shards=[{"name": each, "digest": "d"} for each in shards])


def there(body: dict[str, Any], **changes: Any) -> Resource:
    return replace(Resource.of(body), uid=f"uid-{body['metadata']['name']}", **changes)


def names(steps: Plan) -> tuple[list[str], list[str], list[str]]:
    return (
        [each["metadata"]["name"] for each in steps.write],
        [each.name for each in steps.remove],
        [each.name for each in steps.outdated],
    )


def test_an_object_that_is_as_wanted_is_not_written() -> None:
    assert names(plan([manifest()], [there(manifest())], prune=True)) == ([], [], [])


def test_what_is_not_there_is_written_in_the_given_order() -> None:
    wanted = [manifest("FlagShard", "s2"), manifest("FlagShard", "s1"), index("x", "s2", "s1")]
    assert names(plan(wanted, [], prune=True)) == (["s2", "s1", "x"], [], [])


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"spec": {"flagSpec": {"flags": {"a": 1}}}}, False),
        ({"spec": {"flagSpec": {"flags": {}}, "more": 1}}, False),
        ({"labels": {}}, False),
        ({"labels": {"flagstaff.dev/flagset": "checkout", "team": "x"}}, True),
        ({"annotations": {}}, False),
        ({"annotations": {"flagstaff.dev/revision": "r1", "note": "x"}}, True),
        ({"owners": ()}, False),
        ({"owners": ({"kind": "FlagSet", "uid": "u0"},)}, False),
        ({"owners": (OWNER, {"kind": "Other", "uid": "u9"})}, True),
        ({"status": {"flags": 9}}, True),
    ],
)
def test_content_labels_annotations_and_owner_are_ours_and_the_rest_is_not(
    change: dict[str, Any], same: bool
) -> None:
    assert matches(there(manifest(), **change), manifest()) is same


@pytest.mark.parametrize(("owner", "same"), [(OWNER, False), ({"kind": "Application", "uid": "u9"}, True)])
def test_where_no_owner_is_wanted_only_a_flag_set_is_one_too_many(owner: dict[str, Any], same: bool) -> None:
    wanted = manifest()
    del wanted["metadata"]["ownerReferences"]
    assert matches(there(manifest(), owners=(owner,)), wanted) is same


def test_what_an_api_server_made_of_the_same_manifest_is_as_good_as_it() -> None:
    wanted = manifest(flagSpec={"flags": {}}, new=1)
    kept: dict[str, Any] = {"flagSpec": {"flags": {}}}
    found = there(wanted, spec=kept)
    assert not matches(found, wanted)
    assert matches(found, wanted, Taken(wanted["spec"], kept))
    assert not matches(found, wanted, Taken({"new": 2}, kept))
    assert not matches(there(wanted, spec={}), wanted, Taken(wanted["spec"], kept))


def test_what_is_wanted_no_more_goes_at_once_and_shards_later() -> None:
    found = [there(manifest(name="old")), there(manifest("FlagShard", "s0"))]
    assert names(plan([manifest()], found, prune=True)) == (["x"], ["old"], ["s0"])


def test_what_goes_already_is_not_removed_again() -> None:
    found = [there(manifest(name="old"), deleting=True), there(manifest("FlagShard", "s0"), deleting=True)]
    assert names(plan([], found, prune=True)) == ([], [], [])


def test_without_prune_a_set_that_is_left_behind_keeps_its_shards() -> None:
    found = [
        there(index("old", "s0")),
        there(manifest("FlagShard", "s0")),
        there(manifest("FlagShard", "s1")),
    ]
    assert names(plan([manifest()], found, prune=False)) == (["x"], [], ["s1"])
    assert names(plan([manifest()], found, prune=True)) == (["x"], ["old"], ["s0", "s1"])


def test_shards_of_the_index_that_is_replaced_are_outdated_from_now_on() -> None:
    found = [there(index("x", "s0")), there(manifest("FlagShard", "s0"))]
    steps = plan([manifest("FlagShard", "s1"), index("x", "s1")], found, prune=True)
    assert names(steps) == (["s1", "x"], [], ["s0"])
