"""The right to read FeatureFlags: whose it is, and for how long."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey
from controller.pods.flag_readers import CHECK_SECONDS, NAME, FlagReaders, account_of
from controller.pods.marked_pods import MarkedPods
from controller.runtime.queue import KeyedQueue
from controller.runtime.setbacks import Failed
from tests.waiting import run_until
from tests.worlds.pods import marked_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def pod(name: str, account: str) -> dict[str, Any]:
    return marked_pod(name, {"flagstaff.dev/flag-reader": account})


@dataclass
class RoleCluster:
    """A cluster that keeps what is applied."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of the namespace shop, by kind."""
    writes: list[str] = field(default_factory=list)
    failing: bool = False
    deleted: Callable[[str], None] = lambda _kind: None
    """What happens at that moment."""

    def __post_init__(self) -> None:
        self.time = 0.0
        self.queue: KeyedQueue[str] = KeyedQueue(lambda: self.time, lambda: 0.0)
        self.pods = MarkedPods([""], account_of, self.queue.put)
        self.readers = FlagReaders(self, self.queue, self.pods)

    async def look(self, seconds: float = 0.0) -> list[str]:
        """The writes, once all that is due then was worked on."""
        self.time += seconds
        work = self.queue.work(self.readers.keep, lambda _key, _setback: None, longest=CHECK_SECONDS)
        await run_until(work, lambda: not self.queue.busy)
        writes, self.writes = self.writes, []
        return writes

    @property
    def accounts(self) -> list[str]:
        return [each["name"] for each in self.objects["RoleBinding"]["subjects"]]

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (api_version, namespace, name) == ("rbac.authorization.k8s.io/v1", "shop", NAME)
        if self.failing:
            raise Failed("AccessDenied", "no")
        return deepcopy(self.objects.get(kind))

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        assert manager == "flagstaff-flag-readers"
        self.writes.append(f"apply {manifest['kind']}")
        body = deepcopy(dict(manifest))
        body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
        self.objects[manifest["kind"]] = body
        return body, ""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        del api_version
        assert (namespace, name, uid) == ("shop", NAME, "u")
        self.writes.append(f"delete {kind}")
        del self.objects[kind]
        self.deleted(kind)

    async def places(self, api_version: str, plural: str, namespaces: Sequence[str], name: str) -> set[str]:
        assert (api_version, plural, name) == ("rbac.authorization.k8s.io/v1", "rolebindings", NAME)
        return {"shop"} if "RoleBinding" in self.objects else set()


async def test_accounts_of_pods_read_their_namespace_for_as_long_as_there_are_pods() -> None:
    world = RoleCluster()
    world.pods.informer.learn("Pod", pod("a", "till"))
    world.pods.informer.learn("Pod", pod("b", "till"))
    assert await world.look() == ["apply Role", "apply RoleBinding"]
    assert world.objects["Role"]["rules"] == [
        {
            "apiGroups": ["core.openfeature.dev"],
            "resources": ["featureflags"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    world.pods.informer.learn("Pod", pod("c", "default"))
    assert await world.look() == ["apply RoleBinding"]
    assert world.accounts == ["default", "till"]
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    world.pods.informer.forget(ObjectKey("Pod", "shop", "c"))
    assert (await world.look(), await world.look(CHECK_SECONDS)) == ([], ["apply RoleBinding"])
    assert world.accounts == ["till"]
    world.pods.informer.forget(ObjectKey("Pod", "shop", "b"))
    assert sorted(await world.look(CHECK_SECONDS)) == ["delete Role", "delete RoleBinding"]
    assert (await world.look(CHECK_SECONDS), world.objects) == ([], {})


@pytest.mark.parametrize("kind", ["Role", "RoleBinding"])
async def test_a_pod_that_comes_while_the_right_is_being_removed_gets_it(kind: str) -> None:
    world = RoleCluster()
    world.pods.informer.learn("Pod", pod("till-0", "till"))
    await world.look()
    world.pods.informer.forget(ObjectKey("Pod", "shop", "till-0"))

    def on_delete(what: str) -> None:
        if what == kind:
            world.pods.informer.learn("Pod", pod("till-0", "till"))

    world.deleted = on_delete
    await world.look(CHECK_SECONDS)
    assert (sorted(world.objects), world.accounts) == (["Role", "RoleBinding"], ["till"])


async def test_what_was_taken_away_or_changed_is_restored_and_what_is_right_is_not_written() -> None:
    world = RoleCluster()
    world.pods.informer.learn("Pod", pod("a", "till"))
    await world.look()
    assert await world.look(CHECK_SECONDS) == []
    del world.objects["Role"]
    world.objects["RoleBinding"]["subjects"] = []
    assert await world.look(CHECK_SECONDS) == ["apply Role", "apply RoleBinding"]


async def test_somebody_elses_role_is_left_alone() -> None:
    world = RoleCluster(objects={"Role": {"metadata": {"uid": "x"}}})
    world.pods.informer.learn("Pod", pod("a", "till"))
    assert (await world.look(), [*world.objects]) == ([], ["Role"])
    world.pods.informer.forget(ObjectKey("Pod", "shop", "a"))
    assert await world.look(CHECK_SECONDS) == []


async def test_a_refusal_is_tried_again() -> None:
    world = RoleCluster(failing=True)
    world.pods.informer.learn("Pod", pod("a", "till"))
    await world.look()
    world.failing = False
    assert await world.look(CHECK_SECONDS) == ["apply Role", "apply RoleBinding"]


def test_nothing_is_known_before_every_namespace_was_listed() -> None:
    pods = MarkedPods(["shop", "bank"])
    pods.informer.end_listing("Pod", "shop")
    assert not pods.has_listed
    pods.informer.end_listing("Pod", "bank")
    assert pods.has_listed
