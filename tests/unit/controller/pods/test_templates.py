"""Manifests of workloads: each keeps its template elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from controller.pods.installation import PodRefused
from controller.pods.pod_injection import inject_manifest
from tests.worlds import pods
from tests.worlds.objects import workload

TEMPLATE = {key: value for key, value in pods.pod().items() if key in {"metadata", "spec"}}


def run(manifest: Any) -> Any:
    return inject_manifest(manifest, "shop", pods.OPTIONS, pods.KNOWN)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
def test_a_template_is_injected_as_its_pods_would_be(kind: str) -> None:
    given = workload(kind, template=TEMPLATE)
    assert run(given) == workload(kind, template=pods.inject_pod(TEMPLATE))
    assert given == workload(kind, template=TEMPLATE)


def test_a_pod_and_a_list_of_manifests_are_too() -> None:
    given = {"kind": "List", "items": [pods.pod(), {"kind": "Service"}]}
    assert run(given) == {"kind": "List", "items": [pods.inject_pod(pods.pod()), {"kind": "Service"}]}


@pytest.mark.parametrize(
    "given", [None, "text", {"kind": "Service", "spec": {}}, workload("Job", template={"spec": {}})]
)
def test_what_asks_for_nothing_is_as_it_was(given: Any) -> None:
    assert run(given) == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (workload(template="x", namespace="team"), "Deployment team/checkout: spec.template: is no object"),
        (
            workload("Job", template=pods.pod({"flagstaff.dev/x": ""})),
            "Job shop/checkout: annotation flagstaff.dev/x: unknown",
        ),
    ],
)
def test_a_refusal_names_the_object(given: Any, message: str) -> None:
    with pytest.raises(PodRefused) as refusal:
        run(given)
    assert str(refusal.value).startswith(message)
