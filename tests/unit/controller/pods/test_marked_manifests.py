"""Manifests of workloads with flags, as `flagstaff inject` marks them."""

from __future__ import annotations

from typing import Any

import pytest

from controller.pods import installation
from controller.pods.carried_flags import mark_manifest
from controller.pods.installation import PodRefused


def deployment(text: str | None) -> dict[str, Any]:
    annotations = {} if text is None else {installation.FLAGS: text}
    return {
        "kind": "Deployment",
        "metadata": {"name": "checkout", "annotations": annotations},
        "spec": {"template": {"spec": {}}},
    }


def test_manifest_with_flags_is_marked() -> None:
    (made,) = mark_manifest({"kind": "List", "items": [deployment('{"flags": {}}')]})["items"]
    assert made["metadata"]["labels"] == {installation.DIRECT_SET: "true"}
    assert made["spec"]["template"]["metadata"]["annotations"] == {
        installation.ENABLED: "true",
        installation.DIRECT_SET: "checkout",
    }
    assert mark_manifest(made) == made


@pytest.mark.parametrize("manifest", [deployment(None), {"kind": "Service"}, {"kind": ["List"]}, 3, None])
def test_any_other_manifest_stays_as_it_is(manifest: object) -> None:
    assert mark_manifest(manifest) == manifest


def test_refusal_names_the_workload() -> None:
    with pytest.raises(
        PodRefused, match=r"^Deployment checkout: annotation openfeature\.dev/flags: line 1: "
    ):
        mark_manifest(deployment("{"))
