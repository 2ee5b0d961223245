"""A cluster in memory, as the reconcilers see it."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache, Change, MemoryCluster, manifest_of

KEY = ObjectKey("Kind", "shop", "one")


def body(**spec: Any) -> dict[str, Any]:
    labels = {"a": "b"}
    return {
        "apiVersion": "x/v1", "kind": "Kind", "spec": spec,
        "metadata": {"name": "one", "namespace": "shop", "labels": labels},
    }  # fmt: skip


@pytest.fixture
def changes() -> list[Change]:
    return []


@pytest.fixture
def cluster(changes: list[Change]) -> MemoryCluster:
    objects = Cache()
    objects.react(changes.append)
    return MemoryCluster(objects)


def there(cluster: MemoryCluster) -> Resource:
    found = cluster.objects.get(KEY)
    assert found is not None
    return found


async def test_only_another_spec_is_another_generation(cluster: MemoryCluster) -> None:
    written, manager = await cluster.apply(body(a=1), manager="m")
    await cluster.apply(body(a=1), manager="m")
    assert (there(cluster).generation, there(cluster).uid) == (1, written["metadata"]["uid"])
    await cluster.apply(body(a=2), manager="m")
    assert (there(cluster).generation, there(cluster).spec, manager) == (2, {"a": 2}, "")
    assert (written["spec"], written["metadata"]["generation"]) == ({"a": 1}, 1)


async def test_a_status_stays_when_the_object_is_applied_again(
    cluster: MemoryCluster, changes: list[Change]
) -> None:
    written = await cluster.write_status(cluster.put(body(a=1)), {"flags": 1})
    await cluster.apply(body(a=2), manager="m")
    assert written is not None
    assert (there(cluster).status, there(cluster).generation) == ({"flags": 1}, 2)
    assert [change.latest.resource_version for change in changes] == ["1", "2", "3"]


async def test_an_object_that_was_gone_returns_with_its_uid_and_a_new_status(cluster: MemoryCluster) -> None:
    cluster.put(body(a=1))
    written = manifest_of(cluster.put(body(a=1)))
    again = {**written, "metadata": {**written["metadata"], "uid": there(cluster).uid}}
    cluster.objects.forget(KEY)
    await cluster.write_status(cluster.put(again), {"flags": 2})
    assert there(cluster).status == {"flags": 2}


async def test_an_apply_returns_after_the_object_is_there() -> None:
    seen: list[object] = []

    async def note_applied(resource: Resource) -> None:
        seen.append(objects.get(resource.key))

    objects = Cache()
    await MemoryCluster(objects, note_applied).apply(body(), manager="m")
    assert seen == [objects.get(KEY)]


async def test_an_object_that_is_made_again_is_another_one(cluster: MemoryCluster) -> None:
    first = cluster.put(body())
    await cluster.delete("x/v1", "Kind", "shop", "one", uid="another")
    assert there(cluster) == first
    await cluster.delete("x/v1", "Kind", "shop", "one", uid=first.uid)
    assert await cluster.write_status(first, {"late": True}) is None
    second = cluster.put(body())
    assert second.uid != first.uid
    assert await cluster.write_status(first, {"late": True}) is None
    assert there(cluster) == second


def test_a_manifest_of_an_object_makes_it_again(cluster: MemoryCluster) -> None:
    made = cluster.put(body(a=1))
    again = MemoryCluster(Cache()).put(manifest_of(made))
    assert (again.spec, again.labels, again.key) == (made.spec, made.labels, made.key)
    assert "status" not in manifest_of(made)
