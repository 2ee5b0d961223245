"""(p) Flux's source-controller and ours in one run: a poke until the artifact of the new commit is Ready, and
many sources, cold and at rest.

    python -m benchmarks.flux [PART …]

The parts are `poke`, `rest`, `cold` and `pairs`; without a name all are run. Each subject has a fresh control
plane, and nothing else that runs. A source-controller is taken from SOURCE_CONTROLLER_BINARY or PATH, and its
kinds from the folder SOURCE_CONTROLLER_CRDS; without them its rows are missing and the output says so.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep, median, percentile
from benchmarks.subjects import REPOSITORIES, Subject, flux, ours
from tests.cluster.api import path_of
from tests.cluster.controllers import ControllerProcess
from tests.cluster.hooks import Hook
from tests.cluster.patience import PATIENCE
from tests.cluster.plane import free_ports
from tests.cluster.source_controller import program
from tests.worlds.flags import flags
from tests.worlds.objects import condition, current, flag_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.spines import Spine

ROUNDS, SOURCES, PAIRS = 40, 300, 1_000
SETTLE_SECONDS, MINUTE = 5.0, 60.0
Rows = list[dict[str, Any]]


def main() -> None:
    """The parts that are named."""
    binary = program()
    parts = {"poke": poke, "cold": cold, "rest": rest, "pairs": pairs}
    for name in sys.argv[1:] or parts:
        parts[name](binary)


def each_of(binary: Path | None, measure: Callable[[Subject], Rows]) -> Rows:
    """What is measured of ours, then of Flux's, and the ratio of the first row of each."""
    with ours() as subject:
        rows = measure(subject)
    if binary is None:
        return rows
    with flux(binary) as subject:
        theirs = measure(subject)
    ratio = {"of": "ratio"}
    for name, value in theirs[0].items():
        if isinstance(value, int | float) and value:
            ratio[name] = round(rows[0][name] / value, 2)
    return [*rows, *theirs, ratio]


# -- a poke
# ------------------------------------------------------------------------------------------------------------


def poke(binary: Path | None) -> None:
    """One row by annotation, and for ours one by a webhook that names the commit."""
    keep("poke to artifact Ready, a repository of one file", each_of(binary, rounds))


def rounds(subject: Subject) -> Rows:
    space, name = subject.space, "flags"
    space.apply(subject.source(name, 0, "1h"))
    seen = Watch(space, subject.kind)
    seen.wait(space.repository.git("rev-parse", "HEAD"))
    ways: dict[str, Callable[[str], str]] = {"requestedAt": lambda _: space.poke(subject.kind)}
    if isinstance(subject.process, ControllerProcess):
        ways["webhook"] = Hook(space, subject.process.receiver).send
    return [
        {"of": subject.name, "by": way, **measure_commits(subject, ask, seen, way)}
        for way, ask in ways.items()
    ]


def measure_commits(subject: Subject, ask: Callable[[str], str], seen: Watch, way: str) -> dict[str, Any]:
    """ROUNDS commits, one after another."""
    time.sleep(SETTLE_SECONDS)
    times, before = [], subject.spending()
    for number in range(ROUNDS):
        content = flags(banner="off" if number % 2 else "on", **{way: "on"})
        commit = subject.space.repository.commit("next", flags__json=content)
        started = time.perf_counter()
        ask(commit)
        times.append((seen.wait(commit) - started) * 1000)
    time.sleep(1)
    spent = subject.spending().since(before, ROUNDS if way == "requestedAt" else 0)
    return {
        "rounds": ROUNDS,
        "p50 ms": median(times),
        "p99 ms": percentile(times, 0.99),
        "CPU ms a round": spent["CPU s"] * 1000 / ROUNDS,
        "API writes a round": spent["API writes"] / ROUNDS,
        "Git requests a round": spent["Git requests"] / ROUNDS,
    }


@dataclass
class Watch:
    """When each commit's artifact was there and its source Ready, as a watch reports it."""

    space: Spine
    kind: str
    _seen: queue.SimpleQueue[tuple[str, float]] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, commit: str) -> float:
        """The moment, on time.perf_counter's clock."""
        while True:
            found, moment = self._seen.get(timeout=PATIENCE)
            if found == commit:
                return moment

    def _follow(self) -> None:
        # Ends with the API server.
        with contextlib.suppress(OSError):
            for line in self.space.api.lines(f"{path_of(self.kind, self.space.name)}?watch=1"):
                moment, source = time.perf_counter(), json.loads(line)["object"]
                if ready(source):
                    self._seen.put((source["status"]["artifact"]["revision"].rpartition(":")[2], moment))


# -- many
# ------------------------------------------------------------------------------------------------------------


def cold(binary: Path | None) -> None:
    """Many sources until they are Ready, then a minute of an hour's interval."""
    found = each_of(binary, lambda subject: measure_idle(subject, "1h"))
    keep(f"{SOURCES} sources over {REPOSITORIES} repositories, cold to Ready", part(found, "cold"))
    keep(f"{SOURCES} sources, a minute of interval 1h", part(found, "minute"))


def rest(binary: Path | None) -> None:
    """The same with an interval of a minute, in which nothing is new."""
    found = each_of(binary, lambda subject: measure_idle(subject, "1m"))
    keep(f"{SOURCES} sources, a minute of interval 1m, nothing new", part(found, "minute"))


def measure_idle(subject: Subject, interval: str) -> Rows:
    """What SOURCES sources cost until they are Ready, and a minute later; keys begin with which."""
    sources = [[subject.source(f"each-{each}", each % REPOSITORIES, interval)] for each in range(SOURCES)]
    row = {f"cold {name}": value for name, value in measure_apply(subject, sources, (subject.kind,)).items()}
    time.sleep(SETTLE_SECONDS)
    before = subject.spending()
    time.sleep(MINUTE)
    minute = {f"minute {name}": value for name, value in subject.spending().since(before).items()}
    return [{"of": subject.name, **row, **minute}]


def pairs(_: Path | None) -> None:
    """Ours alone: sources with their sets, from cold to Ready, and a controller that starts where all of them
    are Ready.
    """
    # As in a cluster, where addresses of artifacts outlive the process.
    [port] = free_ports(1)
    with ours("--artifact-port", str(port)) as subject:
        objects = [
            [subject.source(name, each % REPOSITORIES, "1h"), flag_set(name=name, source=name)]
            for each, name in enumerate(f"each-{each}" for each in range(PAIRS))
        ]  # fmt: skip
        row = measure_apply(subject, objects, ("flagsource", "flagset", "ffc"))
        again = measure_restart(subject)
    writes = (row["API writes"] - row["Events of them"]) / PAIRS
    keep(f"{PAIRS} FlagSources and FlagSets, cold to Ready", [{**row, "API writes a pair": writes}])
    keep(f"{PAIRS} FlagSources and FlagSets Ready, a controller that starts", [again])


def measure_restart(subject: Subject) -> dict[str, Any]:
    """From the start until it is ready, until it leads, and until it has reconciled every object once."""
    process = subject.process
    assert isinstance(process, ControllerProcess)
    process.end()
    # The CPU time is that of the new process.
    before, started = replace(subject.spending(), cpu=0.0), time.perf_counter()
    process.start()
    while process.ask("/readyz")[0] != HTTPStatus.OK:
        time.sleep(0.05)
    ready_at = time.perf_counter() - started
    process.wait_leads()
    leads = time.perf_counter() - started
    while any(count < PAIRS for count in reconciled(process)):
        time.sleep(0.2)
    done = time.perf_counter() - started
    time.sleep(SETTLE_SECONDS)
    spent = subject.spending().since(before)
    return {
        "ready s": ready_at,
        "leads s": leads,
        "all reconciled s": done,
        **spent,
        "memory MB": subject.memory(),
    }


def reconciled(process: ControllerProcess) -> list[int]:
    """How many reconciles of each kind succeeded since the process began."""
    text = process.metrics()
    counts = []
    for kind in ("FlagSource", "FlagSet", "FeatureFlagConfiguration"):
        name = f'flagstaff_reconcile_duration_seconds_count{{kind="{kind}",result="success"}}'
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        counts.append(int(float(found[1])) if found else 0)
    return counts


def measure_apply(
    subject: Subject, objects: list[list[dict[str, Any]]], kinds: tuple[str, ...]
) -> dict[str, Any]:
    """Apply them, eight at a time, and wait until as many objects of each kind are Ready."""
    before, started = subject.spending(), time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: subject.space.apply(*each), objects))
    ours = time.perf_counter() - started
    for kind in kinds:
        while sum(map(ready, subject.space.all(kind))) < len(objects):
            # To list many takes the API server longer.
            time.sleep(max(0.2, len(objects) / 1_000))
    seconds = time.perf_counter() - started
    # Events are posted behind the statuses.
    time.sleep(SETTLE_SECONDS)
    spent = subject.spending().since(before, sum(map(len, objects)))
    return {"applied s": ours, "all Ready s": seconds, **spent, "memory MB": subject.memory()}


def ready(found: dict[str, Any]) -> bool:
    """Whether an object is Ready as it is now."""
    return current(found) and condition(found, "Ready").get("status") == "True"


def part(rows: Rows, name: str) -> Rows:
    """The columns whose key begins with the name."""
    return [
        {"of": row["of"]} | {key.partition(" ")[2]: row[key] for key in row if key.startswith(f"{name} ")}
        for row in rows
    ]


if __name__ == "__main__":
    main()
