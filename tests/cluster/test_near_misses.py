"""deploy/components/near-misses on a real API server: what kubectl warns of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.unit.controller.pods.test_near_misses import ENABLED, FLAG_SET
from tests.worlds.objects import workload

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.spines import Spine

pytestmark = pytest.mark.timeout(120)


def test_annotations_that_nearly_ask_for_an_evaluator_are_warned_of(spine: Spine, tmp_path: Path) -> None:
    spine.plane.kubectl("apply", "-f", str(ROOT / "deploy/components/near-misses/near-misses.yaml"))

    def applied(**given: Any) -> str:
        file = tmp_path / "checkout.json"
        file.write_text(json.dumps(workload(namespace=spine.name, **given)))
        return spine.kubectl("apply", "--dry-run=server", "-f", str(file), check=False)

    within(lambda: 'only "true" asks for an evaluator' in applied(below={ENABLED: "True"}))
    assert "of the Deployment is not read; move it" in applied(annotations={ENABLED: "true"})
    assert "label openfeature.dev/enabled is not read" in applied(pod_labels={ENABLED: "true"})
    assert "Warning" not in applied(below={ENABLED: "true", FLAG_SET: "flags"})
