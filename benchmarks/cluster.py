"""(f) On Kubernetes: from a push to a FeatureFlagConfiguration, and many sources and sets from cold to Ready
and at rest.

    python -m benchmarks.cluster

A real API server and `flagstaff controller` as its service account (tests/cluster), Git over HTTP.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep, median, percentile
from tests.cluster.assets import PLANE, find
from tests.cluster.controllers import ControllerProcess, controller
from tests.cluster.hooks import Hook
from tests.cluster.objects import Namespace
from tests.cluster.plane import Plane, run_plane
from tests.cluster.plugin import install
from tests.cluster.spines import Spine, spine_in
from tests.git_http import git_server
from tests.go import build
from tests.repositories import Repository
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.replica import Replica

PUSHES = 60
FLAGS = 50
REPOSITORIES = 10
MANY = 300
IDLE_SECONDS = 60.0


def main() -> None:
    """Both measurements on one plane each."""
    with plane() as (cluster, process, folder):
        keep("push to FeatureFlagConfiguration, HTTP remote", latency(cluster, process, folder))
    with plane() as (cluster, process, folder):
        keep(f"{MANY} FlagSources and FlagSets, cold and idle", many(cluster, process, folder))


@contextlib.contextmanager
def plane(*arguments: str) -> Iterator[tuple[Plane, ControllerProcess, Path]]:
    """A fresh plane with a controller, which is given these arguments."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with run_plane(find() or build(PLANE), folder / "plane") as cluster:
            install(cluster)
            cluster.kubectl("create", "namespace", "shop")
            with controller(cluster, folder / "controller", *arguments) as process:
                process.wait_leads()
                yield cluster, process, folder


# -- push to written
# -------------------------------------------------------------------------------------------------


def latency(cluster: Plane, process: ControllerProcess, folder: Path) -> list[dict[str, Any]]:
    """One row by webhook, one by annotation."""
    with spine_in(cluster, "shop", folder) as spine:
        hook = Hook(spine, process.receiver)
        for kind in ("flagset", "ffc"):
            spine.wait_ready(kind)
        watched = Watch(spine)
        ways: dict[str, Callable[[str], str]] = {
            "webhook": hook.send,
            "requestedAt": lambda _: spine.poke("flagsource"),
        }
        return [row(way, ask, spine, watched, process) for way, ask in ways.items()]


def row(
    way: str, ask: Callable[[str], str], spine: Spine, watched: Watch, process: ControllerProcess
) -> dict[str, Any]:
    """PUSHES pushes, one after another."""
    times, before = [], writes(process)
    for number in range(PUSHES):
        kinds = {f"flag-{index}": "on" for index in range(FLAGS)}
        kinds["banner"] = "off" if number % 2 else "on"
        commit = spine.repository.commit("next", flags__json=flags(**kinds, **{way: "on"}))
        started = time.perf_counter()
        ask(commit)
        times.append((watched.wait(commit) - started) * 1000)
        for kind in ("flagset", "ffc"):
            spine.wait(
                kind, lambda it: it["metadata"]["generation"] == it["status"].get("observedGeneration")
            )
        spine.wait_applied(commit)
    made = Counter(writes(process))
    made.subtract(before)
    per = {name: round(count / PUSHES, 2) for name, count in sorted(made.items()) if count > 1}
    return {
        "by": way,
        "pushes": PUSHES,
        "p50 ms": median(times),
        "p99 ms": percentile(times, 0.99),
        "API writes a push": ", ".join(f"{name} {count}" for name, count in per.items()),
    }


@dataclass
class Watch:
    """When the FeatureFlagConfiguration of each commit was there, as a watch reports it."""

    spine: Spine
    _seen: queue.SimpleQueue[tuple[str, float]] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, commit: str) -> float:
        """The moment, on time.perf_counter's clock."""
        while True:
            found, moment = self._seen.get(timeout=60)
            if found == commit:
                return moment

    def _follow(self) -> None:
        space = f"/apis/core.openfeature.dev/v1beta1/namespaces/{self.spine.name}"
        for line in self.spine.api.lines(f"{space}/featureflagconfigurations?watch=1"):
            moment = time.perf_counter()
            annotations = json.loads(line)["object"]["metadata"].get("annotations") or {}
            self._seen.put((annotations.get("flagstaff.dev/revision", "").rpartition(":")[2], moment))


# -- many
# ------------------------------------------------------------------------------------------------------------


def many(cluster: Plane, process: ControllerProcess, folder: Path) -> list[dict[str, Any]]:
    """MANY sources over REPOSITORIES repositories, each with a set."""
    for number in range(REPOSITORIES):
        repository = Repository(folder / f"repository-{number}")
        repository.commit("first", flags__json=flags(**{f"flag-{each}": "on" for each in range(FLAGS)}))
    space = Namespace(cluster, "shop")
    with git_server(folder) as server:
        started = time.perf_counter()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda each: apply(space, server.url, each), range(MANY)))
        applied = time.perf_counter() - started
        while not all_ready(space):
            time.sleep(0.2)
        ready = time.perf_counter() - started
        cold = sum(writes(process).values())
        asked = len(server.paths)
        time.sleep(5)
        before = sum(writes(process).values())
        time.sleep(IDLE_SECONDS)
        idle = sum(writes(process).values()) - before
    return [
        {
            "sources": MANY, "sets": MANY, "repositories": REPOSITORIES, "applied s": applied,
            "all Ready s": ready, "API writes": cold, "requests to Git": asked, "memory MB": memory(process),
            "API writes a minute at rest": idle,
        }
    ]  # fmt: skip


def apply(space: Namespace, url: str, number: int) -> None:
    """One source and its set."""
    name = f"each-{number}"
    place = f"{url}/repository-{number % REPOSITORIES}/.git"
    space.apply(flag_source(place, name=name), flag_set(name=name, source=name))


def all_ready(space: Namespace) -> bool:
    """Whether everything that is to come is there and Ready."""
    return all(
        sum(condition(each, "Ready").get("status") == "True" for each in space.all(kind)) == MANY
        for kind in ("flagsource", "flagset", "ffc")
    )


def memory(process: Replica) -> float:
    """Resident, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def writes(process: ControllerProcess) -> Counter[str]:
    """API writes so far, by verb and kind."""
    text = process.metrics()
    found = re.findall(r'^flagstaff_api_writes_total\{kind="(\w+)",verb="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return Counter({f"{verb} {kind}": int(float(count)) for kind, verb, count in found})


if __name__ == "__main__":
    main()
