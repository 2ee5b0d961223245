"""An EvaluatorUpgrade on a real API server: the webhook injects, and Kubernetes' controllers roll out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.kinds import DEPLOYMENT, DISRUPTION_BUDGET, POD, RESTARTED
from controller.api.meta import ObjectKey
from controller.kube.adapters import ClusterRestarts
from controller.kube.client import Cluster
from controller.runtime.setbacks import Failed
from tests.cluster.admission import admission
from tests.cluster.api import MERGE, Refused, path_of
from tests.cluster.controllers import SYSTEM, ControllerProcess, controller
from tests.cluster.kubelets import ANYWHERE
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from controller.api.kind import ResourceType
    from tests.cluster.plane import Plane

ASKS = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "flags"}
WORKLOADS = {"web": "deployment", "api": "deployment", "db": "statefulset", "log": "daemonset"}
KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet", "daemonset": "DaemonSet"}
READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
UPGRADE = "evaluatorupgrade"


def source(port: int) -> dict[str, Any]:
    return manifest("FeatureFlagSource", "flags", {"sources": [{"source": "checkout"}], "port": port})


def template(name: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": name}, "annotations": ASKS},
        "spec": {"containers": [{"name": "app", "image": "app:1"}], "tolerations": ANYWHERE},
    }


def workload(name: str, replicas: int) -> dict[str, Any]:
    kind = KINDS[WORKLOADS[name]]
    selector = {"matchLabels": {"app": name}}
    spec: dict[str, Any] = {"selector": selector, "template": template(name)}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def budget(name: str) -> dict[str, Any]:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": spec,
    }


def make_ready(space: Namespace) -> None:
    """Say of each pod what a kubelet would."""
    for each in space.all("pod"):
        if condition(each, "Ready").get("status") != "True":
            path = path_of("pod", space.name, each["metadata"]["name"])
            # It may have gone meanwhile.
            with contextlib.suppress(Refused):
                space.api.ask("PATCH", f"{path}/status", READY, MERGE)


def ports(space: Namespace) -> list[str]:
    """Of the evaluator, in each pod."""
    found = []
    for each in space.all("pod"):
        (sidecar,) = each["spec"]["initContainers"]
        found += [word for word in sidecar["args"] if word.startswith("--port=")]
    return sorted(found)


def generations(space: Namespace) -> dict[str, int]:
    return {name: space.get(kind, name)["metadata"]["generation"] for name, kind in WORKLOADS.items()}


def reasons(space: Namespace) -> list[str]:
    return [each["reason"] for each in space.events("all")]


def counts_pods(space: Namespace, pods: int, outdated: int) -> bool:
    make_ready(space)
    status = space.poke_and_wait(UPGRADE, "all")["status"]
    return bool((status["pods"], status["outdated"]) == (pods, outdated))


def is_settled(space: Namespace) -> bool:
    make_ready(space)
    return condition(space.get(UPGRADE, "all"), "Ready").get("status") == "True"


def disruptable(space: Namespace) -> bool:
    status = space.get("poddisruptionbudget", "web").get("status", {})
    return bool(status.get("disruptionsAllowed"))


@pytest.fixture
def upgrading(spare: Plane, tmp_path: Path) -> Iterator[ControllerProcess]:
    with (
        controller(spare, tmp_path / "controller", "--no-leader-election") as process,
        admission(spare, tmp_path / "admission"),
    ):
        yield process


@pytest.fixture
def shop(spare: Plane, upgrading: ControllerProcess, spare_namespace: str) -> Namespace:
    """Four workloads and a pod of nobody, all of them current."""
    assert upgrading.leads
    space = Namespace(spare, spare_namespace)
    space.kubectl(
        "create", "rolebinding", "flagstaff-upgrades", "--clusterrole=flagstaff-upgrades",
        f"--serviceaccount={SYSTEM}:flagstaff-controller",
    )  # fmt: skip
    space.apply(configuration("checkout", flagSpec=json.loads(flags(banner="on"))), source(9013))
    space.wait_ready("ffc", "checkout")
    space.apply(manifest("EvaluatorUpgrade", "all", {"pause": "1ms"}))
    space.wait_ready(UPGRADE, "all")
    # For the DaemonSet; nothing runs there. A try before this one may have left it.
    with contextlib.suppress(Refused):
        space.api.ask("POST", "/api/v1/nodes", {"metadata": {"name": "node"}})
    space.apply(*(workload(name, 2 if name == "web" else 1) for name in WORKLOADS), budget("web"))
    tool = template("tool")
    tool["metadata"]["name"] = "tool"
    space.apply({"apiVersion": "v1", "kind": "Pod", **tool})
    within(lambda: counts_pods(space, 6, 0) and disruptable(space), lambda: str(space.get(UPGRADE, "all")))
    return space


@pytest.mark.long
def test_workloads_are_restarted_for_a_newer_evaluator_and_a_pod_that_does_not_get_ready_halts_it(
    shop: Namespace, upgrading: ControllerProcess
) -> None:
    assert generations(shop) == dict.fromkeys(WORKLOADS, 1)
    shop.apply(source(9014))
    # The pod of nobody stays as it is, and is counted.
    within(lambda: counts_pods(shop, 6, 1), lambda: str(shop.get(UPGRADE, "all")), patience=120)
    # Pods may be counted before they are ready.
    within(lambda: is_settled(shop), lambda: str(shop.get(UPGRADE, "all")))
    found = shop.get(UPGRADE, "all")
    assert "Pod/tool" in condition(found, "Ready")["message"]
    assert ports(shop) == ["--port=9013", *["--port=9014"] * 5]
    assert generations(shop) == dict.fromkeys(WORKLOADS, 2)
    within(lambda: reasons(shop).count("Upgraded") == len(WORKLOADS), lambda: str(reasons(shop)))
    assert reasons(shop).count("Restarted") == len(WORKLOADS)
    line = shop.kubectl("get", UPGRADE).splitlines()[1].split()
    assert line[:5] == ["all", "True", "6", "5", "1"]

    # That the controller starts anew restarts nothing.
    upgrading.end(signal.SIGKILL)
    upgrading.start()
    shop.poke_and_wait(UPGRADE, "all")
    assert generations(shop) == dict.fromkeys(WORKLOADS, 2)

    # Nobody makes pods ready from here on.
    shop.apply(manifest("EvaluatorUpgrade", "all", {"pause": "1ms", "readyDeadline": "3s"}), source(9015))
    halted = shop.wait(UPGRADE, lambda it: condition(it, "Stalled").get("reason") == "Halted", "all")
    assert "DaemonSet/log was restarted without success: Pod/log-" in condition(halted, "Ready")["message"]
    assert generations(shop) == {"web": 2, "api": 2, "db": 2, "log": 3}
    within(lambda: "Halted" in reasons(shop))


async def test_the_right_to_restart_is_given_by_the_command_that_a_refusal_names(
    cluster: Plane, namespace: str
) -> None:
    space = Namespace(cluster, namespace)
    space.kubectl("create", "serviceaccount", "restarter")
    token = space.kubectl("create", "token", "restarter").strip()
    client = await Cluster.connect(str(cluster.config_for(token, namespace)))
    try:
        restarts = ClusterRestarts(client)
        with pytest.raises(Failed, match="kubectl create rolebinding") as refused:
            await list_objects(restarts, POD, namespace)
        command = shlex.split(refused.value.message.rpartition("; kubectl ")[2])
        space.kubectl(*command[:-1], f"--serviceaccount={namespace}:restarter")
        async with asyncio.timeout(60):
            while not await is_permitted(restarts, namespace):  # noqa: ASYNC110 - the API server notifies nobody
                await asyncio.sleep(0.1)
        space.apply(workload("api", 0))
        (found,) = await list_objects(restarts, DEPLOYMENT, namespace)
        key, version = ObjectKey("Deployment", namespace, "api"), found["metadata"]["resourceVersion"]
        space.patch(
            "deployment", {"spec": {"replicas": 1, "template": {"metadata": {"labels": {"a": "b"}}}}}, "api"
        )
        # Somebody changed it since it was judged.
        with pytest.raises(Failed, match="modified"):
            await restarts.annotate_template(DEPLOYMENT, key, version, {"example.com/a": "b"})
        (found,) = await list_objects(restarts, DEPLOYMENT, namespace)
        assert "example.com/a" not in found["spec"]["template"]["metadata"]["annotations"]
    finally:
        await client.close()


async def list_objects(
    restarts: ClusterRestarts, type_: ResourceType, namespace: str
) -> list[dict[str, Any]]:
    return [each async for each in restarts.each(type_, namespace)]


async def is_permitted(restarts: ClusterRestarts, namespace: str) -> bool:
    """The authorizer learns of a new binding by a watch."""
    try:
        for each in (POD, DISRUPTION_BUDGET, *RESTARTED):
            await list_objects(restarts, each, namespace)
    except Failed:
        return False
    return True
