"""One namespace has the API server ask admission about bad objects, again and again: workloads of others are
accepted all the while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.admission import AdmissionProcess, bad_object, dry_runs, run_installation
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import namespace_on
from tests.cluster.test_direct_sets import DIRECT_SET, FLAGS, apply
from tests.worlds.flags import flags
from tests.worlds.objects import workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = pytest.mark.long

DEPLOYMENT = workload(annotations={FLAGS: flags(banner="on")})


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdmissionProcess]:
    folder, words = tmp_path_factory.mktemp("shares"), ("--evaluator-image", "example/evaluator:0.4.0")
    with run_installation(spare, folder, *words, "--direct-sets") as found:
        yield found.admission


@pytest.fixture
def other_namespace(spare: Plane) -> Iterator[str]:
    with namespace_on(spare) as name:
        yield name


def dry_run(space: Namespace, manifest: dict[str, Any]) -> str:
    """What the API server would store, or why it would not."""
    return apply(space, manifest, "--dry-run=server", "-o", "json")


@pytest.mark.timeout(420)
def test_eight_dry_runs_of_one_namespace_refuse_no_workload_of_another(
    installed: AdmissionProcess, spare: Plane, spare_namespace: str, other_namespace: str, tmp_path: Path
) -> None:
    assert installed.admission
    space, hostile = Namespace(spare, spare_namespace), Namespace(spare, other_namespace)
    within(lambda: DIRECT_SET in dry_run(space, DEPLOYMENT))
    with dry_runs(hostile, tmp_path, bad_object()):
        answers = [dry_run(space, DEPLOYMENT) for _ in range(8)]
    assert [answer for answer in answers if DIRECT_SET not in answer] == []
