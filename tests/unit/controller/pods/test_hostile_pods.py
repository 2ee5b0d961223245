"""Reviews of the largest pods and settings that tenants can write: each holds the event loop a short time."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

import pytest

from controller.pods import installation
from controller.pods.pod_injection import MOST_BYTES
from controller.pods.webhooks import MOST_POD
from tests.unit.controller.pods.test_injector import Webhook
from tests.worlds.objects import thing
from tests.worlds.pods import pod

HELD: Final = 0.25
"""Seconds of one answer."""
SOURCES: Final = {installation.FLAG_SET: None, installation.SOURCES: ",".join(["large"] * 16)}
LONG: Final = "x" * 1_000
LARGE: Final = {
    "sources": [{"source": LONG, "provider": "http"}] * 200,
    "envVars": [{"name": f"E{number}", "value": LONG} for number in range(200)],
    "contextValues": {str(number): LONG for number in range(200)},
}


def containers(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": f"c{number}", **fields} for number in range(count)]


def pod_with_labels(count: int) -> dict[str, Any]:
    asking = pod()
    return {**asking, "metadata": {**asking["metadata"], "labels": {str(n): "" for n in range(count)}}}


def post(given: dict[str, Any], large: dict[str, Any] = LARGE) -> tuple[int, dict[str, Any], int]:
    """(status, the review's response, bytes of the answer), within the time that the loop may be held."""
    names = [thing("FlagSet", "c" + "h" * 250 + f"{number:03}") for number in range(300)]
    webhook = Webhook(thing("FlagSet", "checkout"), thing("FeatureFlagSource", "large", large), *names)
    content = json.dumps({"request": {"uid": "u", "namespace": "shop", "object": given}}).encode()
    began = time.process_time()
    answer = webhook.post(content)
    assert time.process_time() - began < HELD
    found = json.loads(answer.body) if answer.body else {}
    return answer.status, found.get("response", {}), len(answer.body)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pod(containers=containers(257)), "there are 257; a pod that gets an evaluator has at most 256"),
        (pod(initContainers=containers(200), containers=containers(100)), "there are 300"),
        (pod(containers=containers(25_000)), "there are 25000"),
        (pod(containers=containers(1, env=[{"name": "A"}] * 60_000)), "variables, mounts, ports and volumes"),
        (pod(volumes=[{"name": "a"}] * 60_000), "variables, mounts, ports and volumes"),
        (pod_with_labels(60_000), "metadata.labels: there are 60000"),
        (pod({str(number): "" for number in range(60_000)}), "metadata.annotations: there are 60002"),
        (pod({installation.FLAG_SET: None, installation.SOURCES: ",a" * 60_000}), "name at most 16"),
        (pod({installation.FLAG_SET: "c" + "h" * 250}), "has no FlagSet"),
        (pod(SOURCES, containers=containers(250)), "shorten envVars"),
        (pod(SOURCES), "the evaluator's part of the pod has more than"),
        (pod({installation.FLAG_SET: LONG * 200}), "is no object's name"),
        (
            pod({installation.CONTAINERS: "none"}, containers=containers(1, name=LONG * 1_000)),
            "the pod has no",
        ),
    ],
)
def test_a_pod_beyond_the_limits_is_refused_in_few_words(given: dict[str, Any], message: str) -> None:
    status, response, size = post(given)
    assert (status, response["allowed"]) == (200, False)
    assert message in response["status"]["message"]
    assert size < 10_000


@pytest.mark.parametrize(
    "given",
    [
        pod(containers=containers(256)),
        pod(affinity=[{}] * 500_000),
        pod(containers=containers(250, env=[{"name": "A", "value": "b"}] * 39)),
    ],
)
def test_a_large_pod_within_the_limits_is_injected(given: dict[str, Any]) -> None:
    _, response, size = post(given)
    assert response["allowed"]
    assert len(base64.b64decode(response["patch"])) < size < MOST_BYTES


def test_a_source_with_many_entries_is_refused() -> None:
    many = {"sources": [{"source": "a"}] * 100_000}
    _, response, _ = post(pod({**SOURCES, installation.SOURCES: "large"}), many)
    assert "FeatureFlagSource large: sources: has 100000 entries" in response["status"]["message"]


def test_a_larger_review_is_not_read() -> None:
    assert Webhook().post(b" " * (MOST_POD + 1)).status == 413
