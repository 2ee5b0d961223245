"""Pods that ask the evaluator of their node: they get its address, and no container."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.pods import installation
from controller.pods.installation import Options, PodRefused
from controller.pods.pod_injection import inject, record_now
from tests.worlds.pods import OPTIONS, Objects, changes_of, env, pod

NODE = replace(OPTIONS, node_host="node.flags.svc")
ASKS = {installation.EVALUATOR: "node"}


def refusal(
    annotations: dict[str, Any], options: Options = NODE, known: Objects | None = None, **spec: Any
) -> str:
    with pytest.raises(PodRefused) as refused:
        changes_of(pod(ASKS | annotations, **spec), options, known or Objects())
    return str(refused.value)


def test_a_pod_gets_the_address_of_its_nodes_evaluator() -> None:
    found = changes_of(pod(ASKS), NODE).after
    assert "initContainers" not in found["spec"]
    assert [each["name"] for each in found["spec"]["containers"]] == ["app"]
    assert env(found["spec"]["containers"][0]) == {
        "FLAGD_HOST": "node.flags.svc", "FLAGD_PORT": "8013", "FLAGD_SYNC_PORT": "8015",
        "FLAGD_MANAGEMENT_PORT": "8014", "FLAGD_RESOLVER": "rpc",
        "OFREP_ENDPOINT": "http://node.flags.svc:8016",
    }  # fmt: skip


def test_its_record_names_the_flag_sets_that_the_proxy_lets_it_have() -> None:
    annotations = changes_of(pod(ASKS), NODE).after["metadata"]["annotations"]
    record = json.loads(annotations[installation.INJECTED])
    assert record["flagSet"] == "shop/checkout"
    assert "image" not in record
    assert record_now(pod(ASKS)["metadata"]["annotations"], "shop", NODE, Objects()) == record


def test_a_record_that_the_pod_brings_is_replaced() -> None:
    forged = {installation.INJECTED: '{"flagSet":"bank/ledger"}'}
    annotations = changes_of(pod(ASKS | forged), NODE).after["metadata"]["annotations"]
    assert json.loads(annotations[installation.INJECTED])["flagSet"] == "shop/checkout"


def test_what_was_injected_stays_as_it_is() -> None:
    again = inject(changes_of(pod(ASKS), NODE).after, "shop", NODE, Objects())
    assert again is not None
    assert again.patch == []


@pytest.mark.parametrize(
    "name",
    [installation.IMAGE_ANNOTATION, installation.PORT, installation.TRANSPORT, installation.IN_PROCESS],
)
def test_an_annotation_of_a_sidecar_beside_it_is_refused(name: str) -> None:
    assert f"annotation {name} is of an evaluator of the pod" in refusal({name: "8013"})


def test_a_pod_with_the_nodes_address_is_refused() -> None:
    assert "hostNetwork" in refusal({}, hostNetwork=True)


def test_without_evaluators_on_the_nodes_it_is_refused() -> None:
    assert "apply the component node-evaluator" in refusal({}, OPTIONS)


def test_another_word_is_refused() -> None:
    assert "sidecar" in refusal({installation.EVALUATOR: "cluster"})


def test_a_source_outside_of_the_cluster_is_refused() -> None:
    sources = {installation.FLAG_SET: None, installation.SOURCES: "s"}
    known = Objects(s={"sources": [{"source": "https://flags.example.com/f.json", "provider": "http"}]})
    assert "a source that is no flag set of the cluster" in refusal(sources, known=known)
