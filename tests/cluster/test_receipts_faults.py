"""Whether SERVED is right again after a fault: an object that is made again, an API server that is away, a
proxy that dies.
"""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cluster.controllers import controller
from tests.cluster.members import Members, members
from tests.cluster.objects import Namespace, condition, secret
from tests.cluster.patience import within
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest, proxy
from tests.cluster.relay import relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAME = "counted"
API = "core.openfeature.dev/v1beta1"
PATIENCE = 120.0


class World:
    """A proxy, a controller that sums up, and members that reach the proxy through a relay."""

    def __init__(self, space: Namespace, delivering: ProxyProcess, folder: Path) -> None:
        self.space, self.delivering = space, delivering
        self.stack = contextlib.ExitStack()
        self.service = self.stack.enter_context(relay(delivering.sync))
        self.folder = folder

    def members(self, count: int) -> Members:
        """So many, counted."""
        self.put("one")
        selector = f"{self.space.name}/{NAME}"
        made = self.stack.enter_context(members(self.service.port, selector, count))
        self.counted(count)
        return made

    def put(self, text: str) -> None:
        apply(self.space.plane, manifest(self.space.name, NAME, flags(text)))

    def counted(self, count: int) -> None:
        """All serve what is delivered, nobody else is counted, and the receipts are of the object that is
        there.
        """
        served = f"{count}/{count}"
        found = self.space.wait(
            "ffc", lambda it: it.get("status", {}).get("served") == served, NAME, PATIENCE
        )
        assert found["status"]["total"] == count
        assert condition(found, "Propagated")["reason"] == "Served"

    def known(self) -> int:
        """Members that the proxy takes for up to date."""
        (found,) = json.loads(self.delivering.ask("/fleet")[1])["flagSets"]
        return int(found["served"])

    def owners(self) -> set[str]:
        """The uids of the objects that own receipts."""
        receipts = [each["metadata"] for each in self.space.all("flagreceipt")]
        return {owner["uid"] for each in receipts for owner in each["ownerReferences"]}

    def collect(self, uid: str) -> None:
        """Until the garbage collector has seen that the object with this uid is gone."""
        owner = {"apiVersion": API, "kind": "FeatureFlagConfiguration", "name": NAME, "uid": uid}
        sentinel = secret(f"of-{uid}")
        sentinel["metadata"]["ownerReferences"] = [owner]
        self.space.apply(sentinel)
        self.space.wait_gone("secret", f"of-{uid}")


@pytest.fixture(scope="module")
def summing(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with controller(spare, tmp_path_factory.mktemp("controller")):
        yield


@pytest.fixture
def world(spare: Plane, spare_namespace: str, summing: None, tmp_path: Path) -> Iterator[World]:
    with proxy(spare, tmp_path / "proxy") as delivering:
        made = World(Namespace(spare, spare_namespace), delivering, tmp_path)
        with made.stack:
            yield made


def test_an_object_that_is_made_again_and_again_has_a_receipt_of_its_own_in_the_end(world: World) -> None:
    world.members(20)
    before = ""
    for number in range(10):
        before = world.space.get("ffc", NAME)["metadata"]["uid"]
        world.space.delete("ffc", NAME)
        world.put(f"number {number}")
    # The garbage collector may take the receipt with its former owner, after it was given to the new one.
    world.collect(before)
    uid = world.space.get("ffc", NAME)["metadata"]["uid"]
    within(lambda: world.owners() == {uid}, patience=PATIENCE)
    world.counted(20)


def test_a_thousand_members_that_came_and_went_without_an_api_server_are_counted_once_it_is_back(
    spare: Plane, world: World
) -> None:
    fleet = world.members(1000)
    spare.end("kube-apiserver", signal.SIGKILL)
    fleet.leave(30)
    fleet.join(50)
    within(lambda: world.known() == 1020, patience=PATIENCE)
    spare.run("kube-apiserver")
    spare.wait_ready()
    world.counted(1020)
    world.put("two")
    world.counted(1020)


def test_a_thousand_members_of_a_proxy_that_is_killed_are_counted_once_at_another(
    spare: Plane, world: World
) -> None:
    world.members(1000)
    with proxy(spare, world.folder / "other", name="other") as other:
        world.service.target = other.sync
        world.delivering.end(signal.SIGKILL)
        world.put("two")
        world.counted(1000)
        within(lambda: len(world.space.all("flagreceipt")) == 1, patience=PATIENCE)
        world.put("three")
        world.counted(1000)
