"""A workload that carries flags: judged as it is applied, served to its pods, and followed as it changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.admission import admission
from tests.cluster.controllers import controller
from tests.cluster.objects import Namespace, flags
from tests.cluster.patience import within
from tests.cluster.proxies import proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane
    from tests.cluster.proxies import ProxyProcess

FLAGS = "openfeature.dev/flags"
ENABLED = "openfeature.dev/enabled"
DIRECT_SET = "flagstaff.dev/direct-set"
GROUPS = {"Job": "batch/v1", "CronJob": "batch/v1"}


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("direct")
    with proxy(spare, folder / "proxy") as delivering:
        words = "--evaluator-image", "example/evaluator:0.4.0", "--proxy-address", delivering.target
        with (
            controller(spare, folder / "controller", *words) as leader,
            admission(spare, folder / "admission", *words),
        ):
            leader.wait_leads()
            yield delivering


@pytest.fixture
def shop(installed: ProxyProcess, spare: Plane, spare_namespace: str) -> Namespace:
    assert installed.target
    space = Namespace(spare, spare_namespace)
    within(lambda: space.get("serviceaccount", "default"))
    return space


def workload(
    kind: str = "Deployment",
    name: str = "checkout",
    annotations: dict[str, str] | None = None,
    below: dict[str, str] | None = None,
) -> dict[str, Any]:
    """`below`: annotations of the pods' template."""
    labels = {"app": name}
    container = {"name": "app", "image": "app:1"}
    template: dict[str, Any] = {
        "metadata": {"labels": labels, "annotations": below or {}},
        "spec": {"containers": [container]},
    }
    spec: dict[str, Any] = {"template": template}
    if kind in {"Job", "CronJob"}:
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": labels}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    return {
        "apiVersion": GROUPS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec,
    }


def apply(space: Namespace, manifest: dict[str, Any], *words: str) -> str:
    return space.kubectl("apply", *words, "-f", "-", given=json.dumps(manifest), check=False)


def template_of(found: dict[str, Any]) -> dict[str, Any]:
    spec = found["spec"]
    spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    annotations: dict[str, Any] = spec["template"]["metadata"].get("annotations", {})
    return annotations


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_a_workload_with_flags_has_its_pods_ask_for_an_evaluator(shop: Namespace, kind: str) -> None:
    shown = apply(shop, workload(kind, annotations={FLAGS: flags(banner="on")}))
    found = shop.get(kind.lower(), "checkout")
    assert found, shown
    assert template_of(found) == {ENABLED: "true", DIRECT_SET: "checkout"}
    assert found["metadata"]["labels"][DIRECT_SET] == "true"
    record = json.loads(found["metadata"]["annotations"]["flagstaff.dev/direct-set-applied"])
    assert record["by"]
