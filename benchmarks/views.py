"""(ac) What people wait for who look at a set of 10,000 flags in a cluster: verbs of `flagstaff`, and views
of the page, beside `kubectl get` of the same objects.

    python -m benchmarks.views

The tests' control plane, `flagstaff controller` and `flagstaff page`. A repository holds the flags, a FlagSet
applies them. Each command is a process of its own: wall and CPU time, start included. A view is asked for
with a viewer's token; its CPU time is that of the page.
"""

from __future__ import annotations

import json
import tempfile
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands import FLAGSTAFF, run
from benchmarks.flag_tests import FLAGS, definition
from benchmarks.footprint import bytecode_environment
from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median
from benchmarks.subjects import ours
from tests.cluster.assets import PLANE, find
from tests.cluster.pages import page, token_of
from tests.cluster.patience import within
from tests.go import build
from tests.worlds.objects import flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.subjects import Subject
    from tests.cluster.pages import PageProcess

ROUNDS = 7
SET = "flags"
LAST = f"flag-{FLAGS - 1:05}"
COMMANDS = (
    ("kubectl", "get", "flagset"),
    ("kubectl", "get", "featureflagconfiguration"),
    ("kubectl", "get", "featureflagconfiguration,flagshard", "-o", "json"),
    ("flagstaff", "get", "sets"),
    ("flagstaff", "get", "flags"),
    ("flagstaff", "get", "flags", LAST),
    ("flagstaff", "describe", "set", SET),
    ("flagstaff", "tree"),
    ("flagstaff", "fleet"),
    ("flagstaff", "trace", LAST),
)
VIEWS = (
    "/flags?set={of}",
    f"/flags?set={{of}}&q={LAST}",
    "/flags?set={of}&sort=changed",
    f"/flag?set={{of}}&key={LAST}",
    "/delivery?set={of}",
    "/pending",
)


def apply(subject: Subject) -> None:
    """Commit the flags, and wait until they are applied."""
    space = subject.space
    flags = json.dumps({"flags": {f"flag-{number:05}": definition(number) for number in range(FLAGS)}})
    commit = space.repository.commit(f"add {FLAGS} flags", flags__json=flags)
    space.apply(subject.source(SET, 0, "1h"), flag_set(name=SET, source=SET))
    space.wait_applied(commit)


def command_rows(subject: Subject, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what each command takes."""
    programs = {"kubectl": str((find() or build(PLANE)) / "kubectl"), "flagstaff": FLAGSTAFF}
    environment = bytecode_environment(folder / "bytecode")
    environment["KUBECONFIG"] = str(subject.space.plane.kubeconfig)
    for name, *words in COMMANDS:
        command = [programs[name], *words, "-n", subject.space.name]
        run(command, environment=environment)
        used = [run(command, environment=environment) for _ in range(ROUNDS)]
        wall, cpu, _ = (median(column) for column in zip(*used, strict=True))
        yield {"what": " ".join((name, *words)), "wall ms": wall, "CPU ms": cpu}


def view_rows(subject: Subject, process: PageProcess) -> Iterator[dict[str, Any]]:
    """Yield what each view of the page takes."""
    token = token_of(subject.space)
    name = f"{subject.space.name}/{SET}"
    within(lambda: name in process.get("/delivery", token)[1], process.log_text)
    for view in VIEWS:
        path = view.format(of=name)
        status, text = process.get(path, token)
        if status != HTTPStatus.OK:
            raise SystemExit(f"{path} was answered with {status}")
        used, walls = cpu_seconds(process.pid), []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            process.get(path, token)
            walls.append((time.perf_counter() - began) * 1000)
        used = (cpu_seconds(process.pid) - used) * 1000 / ROUNDS
        shown = {"wall ms": median(walls), "CPU ms": used, "KB": len(text) / 1000}
        yield {"what": f"page {view.format(of='SET')}", **shown}


def rows() -> Iterator[dict[str, Any]]:
    """Yield all rows."""
    with ours() as subject, tempfile.TemporaryDirectory() as folder:
        apply(subject)
        yield from command_rows(subject, Path(folder))
        with page(subject.space.plane, Path(folder) / "page") as process:
            yield from view_rows(subject, process)


def main() -> None:
    """Measure and keep."""
    keep(f"views of {FLAGS:,} flags in a cluster", rows())


if __name__ == "__main__":
    main()
