"""(t) On Kubernetes: a Deployment with flags, while another namespace sends eight dry runs at a time of bad
objects near the limit; and of ConfigMaps of that size, about which admission is not asked, so that what
kubectl and the API server need of the same processors is not taken for admission's.

    python -m benchmarks.dry_runs

A real API server, `flagstaff controller` and `flagstaff admission`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import plane
from benchmarks.results import keep, median
from tests.cluster.admission import admission, bad_object, dry_runs
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.test_admission_shares import DEPLOYMENT, dry_run
from tests.cluster.test_direct_sets import DIRECT_SET

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIES = 20
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "large"},
    "data": {f"key-{number}": "x" * 1_000 for number in range(1_000)},
}
WORDS = ("--evaluator-image", "example/evaluator:0.4.0", "--direct-sets")


def main() -> None:
    """Quiet, then beside dry runs of both kinds."""
    with plane(*WORDS) as (cluster, _, folder), admission(cluster, folder / "admission", *WORDS):
        space, hostile = Namespace(cluster, "shop"), Namespace(cluster, "hostile")
        cluster.kubectl("create", "namespace", hostile.name)
        within(lambda: DIRECT_SET in dry_run(space, DEPLOYMENT))
        quiet = measure(space)
        with dry_runs(hostile, folder, CONFIG_MAP):
            beside_others = measure(space)
        with dry_runs(hostile, folder, bad_object()):
            beside = measure(space)
    base = median([abs(seconds) for seconds in beside_others])
    rows = [
        row("quiet", quiet, base),
        row("beside eight dry runs of ConfigMaps", beside_others, base),
        row("beside eight dry runs of bad objects", beside, base),
    ]
    keep("a Deployment with flags, beside dry runs of another namespace", rows)


def measure(space: Namespace) -> list[float]:
    """Seconds of each try, kubectl's own included; negative where it is refused."""
    taken = []
    for _ in range(TRIES):
        began = time.perf_counter()
        accepted = DIRECT_SET in dry_run(space, DEPLOYMENT)
        taken.append((time.perf_counter() - began) * (1 if accepted else -1))
    return taken


def row(name: str, taken: Sequence[float], base: float) -> dict[str, Any]:
    """With the ratio to what ConfigMaps cost."""
    seconds = median([abs(one) for one in taken])
    return {
        "way": name,
        "tries": len(taken),
        "refused": sum(one < 0 for one in taken),
        "median ms": seconds * 1e3,
        "to ConfigMaps": seconds / base,
    }


if __name__ == "__main__":
    main()
