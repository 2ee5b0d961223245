"""What the cache knows, and what its indexes list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import model_validator

from controller.api.fields import InvalidSpecError, Model, parse_spec
from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import REMEMBERED, Cache, Change, Index

KEY = ObjectKey("Thing", "shop", "a")
BY_LABEL = Index(
    "Thing by label", frozenset({"Thing"}), lambda each: [each.labels["of"]] if "of" in each.labels else []
)


def thing(version: int, *, uid: str = "u", name: str = "a", label: str = "") -> Resource:
    labels = {"of": label} if label else {}
    key = ObjectKey("Thing", "shop", name)
    return Resource(key, uid=uid, generation=1, resource_version=str(version), labels=labels)


def by_name(resource: Resource) -> str:
    return resource.name


def test_a_late_event_of_a_deleted_object_does_not_bring_it_back() -> None:
    cache = Cache()
    cache.learn(thing(1))
    cache.forget(KEY)
    assert not cache.learn(thing(2))
    assert cache.get(KEY) is None
    assert cache.learn(thing(3, uid="another"))


def test_deleted_objects_are_remembered_within_bounds() -> None:
    cache = Cache()
    for number in range(REMEMBERED + 1):
        cache.learn(thing(1, uid=str(number)))
        cache.forget(KEY)
    assert cache.learn(thing(1, uid="0"))
    assert not cache.learn(thing(1, uid=str(REMEMBERED)))


def test_objects_are_found_by_kind_and_namespace() -> None:
    cache = Cache()
    cache.learn(thing(1))
    other = replace(thing(1, uid="v"), key=ObjectKey("Thing", "other", "a"))
    cache.learn(other)
    assert len(cache.of_kind("Thing")) == 2
    assert cache.of_kind("Thing", "other") == [other]
    assert cache.of_kind("Thing", "nowhere") == []
    assert cache.of_kind("Nothing") == []


def test_every_change_is_reported_once_it_can_be_read() -> None:
    changes: list[tuple[Change, Resource | None]] = []
    cache = Cache()
    cache.react(lambda change: changes.append((change, cache.get(KEY))))
    first, second = thing(1), thing(2)
    for each in (first, second, first):
        cache.learn(each)
    cache.forget(KEY)
    cache.forget(KEY)
    assert changes == [
        (Change(None, first), first),
        (Change(first, second), second),
        (Change(second, None), None),
    ]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "y"]), st.booleans())))
def test_an_index_lists_what_a_scan_finds(steps: list[tuple[str, str, bool]]) -> None:
    cache = Cache([BY_LABEL])
    for version, (name, label, deleted) in enumerate(steps):
        cache.learn(thing(version, uid=f"{name}{version}", name=name, label=label))
        if deleted:
            cache.forget(ObjectKey("Thing", "shop", name))
        for wanted in ("x", "y"):
            scanned = [each for each in cache.of_kind("Thing") if each.labels.get("of") == wanted]
            assert sorted(cache.find(BY_LABEL, "shop", wanted), key=by_name) == sorted(scanned, key=by_name)
            assert cache.choose(BY_LABEL, "shop", wanted, list) == cache.find(BY_LABEL, "shop", wanted)
            assert cache.find(BY_LABEL, "other", wanted) == []


def test_what_is_chosen_of_a_list_is_chosen_once_until_an_object_comes_or_goes() -> None:
    cache, asked = Cache([BY_LABEL]), []

    def first(listed: list[Resource]) -> list[Resource]:
        asked.append(len(listed))
        return listed[:1]

    def chosen_version() -> str:
        (one,) = cache.choose(BY_LABEL, "shop", "x", first)
        return one.resource_version

    cache.learn(thing(1, label="x"))
    assert [chosen_version(), chosen_version()] == ["1", "1"]
    cache.learn(thing(2, label="x"))
    assert (chosen_version(), asked) == ("2", [1])
    for name, label in (("b", "x"), ("b", "x"), ("c", "y"), ("b", "y")):
        cache.learn(thing(3, uid=name, name=name, label=label))
        cache.put(thing(3, uid=name, name=name, label=label))
        assert chosen_version() == "2"
    assert asked == [1, 2, 1]


def test_the_only_watch_of_an_object_may_bring_an_older_version_and_bring_it_back() -> None:
    cache = Cache((BY_LABEL,))
    cache.put(thing(7, label="seven"))
    cache.put(thing(3, label="three"))
    assert (cache.get(KEY), len(cache)) == (thing(3, label="three"), 1)
    assert cache.find(BY_LABEL, "shop", "seven") == []
    cache.forget(KEY)
    cache.put(thing(3))
    assert (cache.get(KEY), len(cache)) == (thing(3), 1)


def test_a_spec_is_read_once_for_each_generation_also_where_it_is_invalid() -> None:
    read: list[object] = []

    class Spec(Model):
        size: int

        @model_validator(mode="before")
        @classmethod
        def count(cls, value: object) -> object:
            read.append(value)
            return value

    cache, key = Cache(), ObjectKey("FlagSet", "shop", "a")
    for version, (generation, size) in enumerate([(1, 7), (1, 7), (2, "none"), (2, "none"), (3, 8)], 1):
        spec, status = {"size": size}, {"observedGeneration": version}
        cache.learn(Resource(key, "uid", generation, str(version), spec, status))
        found = cache.get(key)
        assert found is not None
        for _ in range(3):
            if isinstance(size, int):
                assert parse_spec(Spec, found).size == size
            else:
                with pytest.raises(InvalidSpecError, match=r"spec\.size"):
                    parse_spec(Spec, found)
    assert len(read) == 3
