"""Manifests of workloads with flags, as `flagstaff inject` marks them."""

from __future__ import annotations

import pytest

from controller.pods import installation
from controller.pods.carried_flags import mark_manifest
from controller.pods.installation import PodRefused
from tests.worlds.objects import workload


def test_manifest_with_flags_is_marked() -> None:
    given = workload(annotations={installation.FLAGS: '{"flags": {}}'})
    (made,) = mark_manifest({"kind": "List", "items": [given]})["items"]
    assert made["metadata"]["labels"] == {installation.DIRECT_SET: "true"}
    assert made["spec"]["template"]["metadata"]["annotations"] == {
        installation.ENABLED: "true",
        installation.DIRECT_SET: "checkout",
    }
    assert mark_manifest(made) == made


@pytest.mark.parametrize("manifest", [workload(), {"kind": "Service"}, {"kind": ["List"]}, 3, None])
def test_any_other_manifest_stays_as_it_is(manifest: object) -> None:
    assert mark_manifest(manifest) == manifest


def test_refusal_names_the_workload() -> None:
    with pytest.raises(
        PodRefused, match=r"^Deployment checkout: annotation openfeature\.dev/flags: line 1: "
    ):
        mark_manifest(workload(annotations={installation.FLAGS: "{"}))
