"""One namespace has the API server ask admission about bad objects, again and again: workloads of others are
accepted all the while.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.admission import AdmissionProcess, admission
from tests.cluster.controllers import controller
from tests.cluster.objects import Namespace, configuration, flags
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT, namespace_on
from tests.cluster.test_direct_sets import DIRECT_SET, FLAGS, apply, workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

DRY_RUNS = 8
LARGE = {
    f"flag-{number}": {"stat": 1, "variant": 2, "defaultVarian": 3, "targetin": 4} for number in range(17_000)
}
"""Near what an object may have, and each field of it is misspelt."""
DEPLOYMENT = workload(annotations={FLAGS: flags(banner="on")})


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdmissionProcess]:
    folder = tmp_path_factory.mktemp("shares")
    spare.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/components/direct-sets/binding.yaml"))
    words = ("--evaluator-image", "example/evaluator:0.4.0", "--direct-sets")
    with (
        controller(spare, folder / "controller", *words) as leader,
        admission(spare, folder / "admission", *words) as answering,
    ):
        leader.wait_leads()
        yield answering


@pytest.fixture
def other_namespace(spare: Plane) -> Iterator[str]:
    with namespace_on(spare) as name:
        yield name


def dry_run(space: Namespace, manifest: dict[str, Any]) -> str:
    """What the API server would store, or why it would not."""
    return apply(space, manifest, "--dry-run=server", "-o", "json")


def test_eight_dry_runs_of_one_namespace_refuse_no_workload_of_another(
    installed: AdmissionProcess, spare: Plane, spare_namespace: str, other_namespace: str, tmp_path: Path
) -> None:
    assert installed.admission
    space, hostile = Namespace(spare, spare_namespace), Namespace(spare, other_namespace)
    within(lambda: DIRECT_SET in dry_run(space, DEPLOYMENT))
    manifest = tmp_path / "large.json"
    manifest.write_text(json.dumps(configuration("large", flagSpec={"flags": LARGE})))
    ended = threading.Event()

    def dry_run_again_and_again() -> int:
        runs = 0
        while not ended.is_set():
            hostile.kubectl("create", "--dry-run=server", "-f", str(manifest), check=False)
            runs += 1
        return runs

    with ThreadPoolExecutor(DRY_RUNS) as pool:
        runs = [pool.submit(dry_run_again_and_again) for _ in range(DRY_RUNS)]
        try:
            answers = [dry_run(space, DEPLOYMENT) for _ in range(12)]
        finally:
            ended.set()
    assert all(run.result() for run in runs)
    assert [answer for answer in answers if DIRECT_SET not in answer] == []
