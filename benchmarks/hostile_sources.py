"""(n) What hostile repositories cost the controller and whose sources it reads beside them.

    python -m benchmarks.hostile_sources

A real API server and `flagstaff controller` as its service account (tests/cluster), Git over HTTP. A tenant's
source and set are of a repository that is small to fetch and large to read (tests/bombs.py); beside them
another tenant's pushes become FeatureFlagConfigurations. The aims: at most 64 MB more memory, and an event
loop that is never held for 50 ms.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from benchmarks.cluster import Watch, plane
from benchmarks.observed import Observed
from benchmarks.results import keep, median
from tests.bombs import BOMBS, objects
from tests.cluster.objects import Namespace
from tests.cluster.spines import Spine, spine_in
from tests.repositories import Repository
from tests.worlds.flags import flags
from tests.worlds.objects import condition

if TYPE_CHECKING:
    from tests.cluster.controllers import ControllerProcess

SECONDS = 6.0
"""Of pushes beside each repository."""


def main() -> None:
    """Each repository in turn, beside none at first."""
    with plane() as (cluster, process, folder), spine_in(cluster, "shop", folder) as spine:
        cluster.kubectl("create", "namespace", "hostile")
        hostile = Namespace(cluster, "hostile")
        spine.wait_ready("ffc")
        watched = Watch(spine)
        for name, (make, _, _) in BOMBS.items():
            make(Repository(folder / name))
        found: dict[str, list[dict[str, Any]]] = {}
        for each in objects(spine.server.url):
            found.setdefault(each["metadata"]["name"], []).append(each)
        rows = [row("none", hostile, [], spine, watched, process)]
        rows += [row(name, hostile, given, spine, watched, process) for name, given in found.items()]
    keep("pushes to FeatureFlagConfiguration beside a hostile repository", rows)


def row(
    name: str,
    hostile: Namespace,
    given: list[dict[str, Any]],
    spine: Spine,
    watched: Watch,
    process: ControllerProcess,
) -> dict[str, Any]:
    """Pushes until the status names the limit, for SECONDS at least and three times as long at most."""
    observed = Observed(process.pid, f"http://127.0.0.1:{process.management}")
    hostile.apply(*given)
    times: list[float] = []
    began, reason = time.monotonic(), ""
    while time.monotonic() - began < (SECONDS if reason or not given else 3 * SECONDS):
        commit = spine.repository.commit("next", flags__json=flags(**{f"at-{time.time_ns()}": "on"}))
        started = time.perf_counter()
        spine.poke("flagsource")
        times.append((watched.wait(commit) - started) * 1000)
        reason = reason or _reason(hostile, name)
    for each in given:
        hostile.delete({"FlagSource": "flagsource", "FlagSet": "flagset"}[each["kind"]], name)
    return {
        "repository": name,
        "pushes": len(times),
        "p50 ms": median(times),
        "worst ms": max(times),
        **observed.figures(),
        "reason": reason,
    }


def _reason(hostile: Namespace, name: str) -> str:
    """The reason of the status that names the limit; empty where none does so far."""
    if name not in BOMBS:
        return ""
    _, kind, limit = BOMBS[name]
    ready = condition(hostile.get(kind, name), "Ready")
    return str(ready.get("reason")) if re.search(limit, str(ready.get("message"))) else ""


if __name__ == "__main__":
    main()
