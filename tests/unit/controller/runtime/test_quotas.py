"""Who may have how much of what a namespace has, and who is woken when there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache, Change
from controller.runtime.quotas import UNLIMITED, Quota, index_of_refused, wake_when_freed
from controller.runtime.setbacks import Stalled

INDEX = index_of_refused("FlagSource")


def usage(resource: Resource) -> int:
    return int(resource.status.get("has", 0))


def source(name: str, has: int = 0, *, namespace: str = "shop", reason: str = "") -> Resource:
    """The names of objects are in the order of their age."""
    ready = [{"type": "Ready", "status": "False", "reason": reason}] if reason else []
    key = ObjectKey("FlagSource", namespace, name)
    return Resource(key, name, 1, "1", status={"has": has, "conditions": ready}, created=f"2026-{name}")


class Space:
    """Objects, and a quota of 10 on what they have."""

    def __init__(self, *found: Resource, most: int = 10) -> None:
        self.objects = Cache((INDEX,))
        for each in found:
            self.objects.learn(each)
        self.quota = Quota("things", "--quota-things", most, usage, self.objects)

    def lets(self, resource: Resource, wanted: int) -> bool:
        try:
            self.quota.require(resource, wanted)
        except Stalled:
            return False
        return True


def test_a_refusal_has_the_figure_the_limit_and_the_option() -> None:
    space = Space(source("a", 7))
    with pytest.raises(Stalled) as caught:
        space.quota.require(source("b"), 4)
    assert caught.value.reason == "QuotaExceeded"
    assert caught.value.message == (
        "things of namespace shop: 11, and its quota is 10; "
        "remove some, or have the quota raised (--quota-things)"
    )


def test_up_to_the_limit_all_is_let_and_other_namespaces_do_not_count() -> None:
    space = Space(source("a", 7), source("x", 99, namespace="other"))
    assert space.lets(source("b"), 3)


def test_where_a_limit_is_lowered_the_oldest_keep_what_they_have() -> None:
    there = [source(name, 4) for name in "abcd"]
    space = Space(*there)
    assert [space.lets(each, 4) for each in there] == [True, True, False, False]


def test_an_object_does_not_grow_into_the_quota_of_a_younger_one() -> None:
    old, young = source("a", 1), source("b", 9)
    space = Space(old, young)
    assert not space.lets(old, 2)
    assert space.lets(old, 1)
    assert space.lets(young, 5)
    # Its status does not show it yet.
    assert space.lets(old, 5)


def test_an_allowed_object_counts_before_its_status_shows_it_and_until_it_is_deleted() -> None:
    first, second = source("a"), source("b")
    space = Space(first, second)
    assert space.lets(first, 8)
    assert not space.lets(second, 3)
    space.quota.forget(first.key)
    assert space.lets(second, 3)


def test_what_was_let_and_failed_is_given_back() -> None:
    first, second = source("a", 1), source("b")
    space = Space(first, second)
    assert space.lets(first, 9)
    with space.quota.release_on_error(first.key):
        """It did not fail."""
    assert not space.lets(second, 9)
    with pytest.raises(KeyError), space.quota.release_on_error(first.key):
        raise KeyError("no")
    assert space.lets(second, 9)


def test_an_object_does_not_have_what_another_of_its_name_was_let_have() -> None:
    first, second = source("a"), source("b")
    space = Space(first, second)
    assert space.lets(replace(first, uid="gone"), 8)
    assert space.lets(second, 10)


def test_without_a_limit_nothing_is_counted() -> None:
    UNLIMITED.require(source("a"), 10**12)


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        (Change(source("a", 3), None), {"over"}),
        (Change(source("a", 3), source("a", 2)), {"over"}),
        (Change(source("a", 3), source("a", 4)), set()),
        (Change(None, source("a", 3)), set()),
        (Change(source("a", 3), source("a", 3, reason="GitFailed")), set()),
        (Change(source("a", 3, namespace="other"), None), set()),
    ],
)
def test_a_refused_object_is_woken_where_there_is_room(change: Change, woken: set[str]) -> None:
    space = Space(source("over", reason="QuotaExceeded"), source("bad", reason="GitFailed"), source("good"))
    watch = wake_when_freed("FlagSource", INDEX, usage)
    changed = watch.changed(change.before) != watch.changed(change.after)
    assert {each.name for each in watch.keys(space.objects, change) if changed} == woken
