"""Five hundred Pods that are counted: as they come, through a change of their flags, and while a rolling
restart replaces all of them.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.assets import KWOK, find
from tests.cluster.controllers import controller
from tests.cluster.crowds import Crowd, crowd
from tests.cluster.kubelets import ANYWHERE, kubelets
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import without
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest, proxy
from tests.cluster.test_sidecar import documents
from tests.worlds.objects import condition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PODS = 500
ALL = f"{PODS}/{PODS}"
APP = "checkout"
PATIENCE = 180.0


class Fleet:
    """A Deployment of the example's pods, who follow one flag set through one proxy."""

    def __init__(self, space: Namespace, delivering: ProxyProcess, members: Crowd) -> None:
        self.space, self.delivering, self.members = space, delivering, members

    def deploy(self) -> None:
        """As the example has it, but for what would take a kubelet."""
        items = documents()
        deployment = next(each for each in items if each["kind"] == "Deployment")
        deployment["spec"]["replicas"] = PODS
        deployment["spec"]["template"]["spec"]["tolerations"] = ANYWHERE
        self.space.kubectl(
            "apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        )

    def put(self, text: str) -> str:
        """From here on the flag is this; the digest."""
        before = self.space.get("ffc", APP).get("status", {}).get("digest")
        apply(self.space.plane, manifest(self.space.name, APP, flags(text)))
        found = self.space.wait("ffc", lambda it: it["status"].get("digest") not in (None, before), APP)
        return str(found["status"]["digest"])

    def uids(self) -> set[str]:
        """Of all Pods that are there."""
        return {each["metadata"]["uid"] for each in self.members.pods()}

    def wait_counted(self) -> None:
        """Every Pod that is there serves what is delivered, nobody else is counted, and
        everything says so.
        """
        names = {f"{self.space.name}/{each['metadata']['name']}" for each in self.members.pods()}
        within(lambda: self._known_members() == names, patience=PATIENCE)
        found = self.space.wait("ffc", lambda it: it["status"].get("served") == ALL, APP, patience=PATIENCE)
        assert len(names) == found["status"]["total"] == PODS
        assert "laggards" not in found["status"]
        propagated = condition(found, "Propagated")
        assert (propagated["status"], propagated["reason"]) == ("True", "Served")

    def _known_members(self) -> set[str]:
        """Members that the proxy takes for up to date; empty where it knows of another."""
        (flag_set,) = json.loads(self.delivering.ask("/fleet")[1])["flagSets"]
        served = flag_set["served"] == flag_set["total"]
        return {each["name"] for each in flag_set["members"]} if served else set()


@pytest.fixture(scope="module")
def nodes(spare: Plane) -> Iterator[None]:
    kwok = find(KWOK)
    if kwok is None:
        without("NO FLEET IS TESTED: no kwok here; `make kwok` builds it")
    with kubelets(spare, kwok):
        yield


@pytest.fixture
def fleet(spare: Plane, spare_namespace: str, nodes: None, tmp_path: Path) -> Iterator[Fleet]:
    space = Namespace(spare, spare_namespace)
    with (
        controller(spare, tmp_path / "a", "--no-leader-election"),
        proxy(spare, tmp_path / "proxy") as delivering,
        crowd(space, delivering.target, APP) as members,
    ):
        yield Fleet(space, delivering, members)


def test_each_of_500_pods_is_counted_once_through_a_change_and_a_rolling_restart(fleet: Fleet) -> None:
    fleet.put("one")
    fleet.deploy()
    fleet.space.wait("deployment", available, APP, patience=PATIENCE)
    fleet.wait_counted()
    before, started = fleet.space.api.writes(), time.monotonic()
    fleet.put("two")
    fleet.wait_counted()

    old = fleet.uids()
    fleet.space.kubectl("rollout", "restart", f"deployment/{APP}")
    fleet.space.wait("deployment", available, APP, patience=PATIENCE)
    within(lambda: len(fleet.uids()) == PODS, patience=PATIENCE)
    assert not old & fleet.uids()
    fleet.wait_counted()

    seconds = time.monotonic() - started
    made = fleet.space.api.writes() - before
    # One a second at most for each, and a few for the change itself.
    assert 2 <= made["flagreceipts"] <= seconds + 3
    assert 2 <= made["featureflagconfigurations"] <= seconds + 5


def available(found: dict[str, Any]) -> bool:
    """Whether the newest Pods of a Deployment are all there is, and ready."""
    status = found.get("status", {})
    counts = [status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    current = status.get("observedGeneration") == found["metadata"]["generation"]
    return bool(current and counts == [PODS] * 3)
