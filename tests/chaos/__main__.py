"""Breaks what Flagstaff stands on, for CHAOS_SECONDS, while commits flow, and looks whether every promise
holds: `make chaos`, `python -m tests.chaos`.

What breaks is drawn from CHAOS_SEED and printed; CHAOS_FAULTS names a file with such lines, to break the same
again, or less of it. Exit code 1: something did not hold.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.chaos.commits import Commits
from tests.chaos.faults import draw, read
from tests.chaos.judging import Violations
from tests.chaos.leaks import MORE, count_held, leaks
from tests.chaos.observing import Observer, wait_settled
from tests.chaos.world import ChaosWorld
from tests.cluster.assets import PLANE, find
from tests.cluster.plane import run_plane
from tests.cluster.plugin import install
from tests.cluster.spines import spine_in
from tests.go import build

if TYPE_CHECKING:
    from tests.chaos.faults import Fault

SECONDS: Final = 300.0
NAMESPACE: Final = "shop"
SETTLED_WITHIN: Final = 30.0
"""Seconds after the last fault until everybody is current."""
_FIRST_SECONDS: Final = 90.0


def main() -> int:
    """Draw, start, break, judge, report."""
    seconds = float(os.environ.get("CHAOS_SECONDS") or SECONDS)
    seed = os.environ.get("CHAOS_SEED") or str(random.SystemRandom().randrange(10**6))
    named = os.environ.get("CHAOS_FAULTS")
    faults = read(Path(named).read_text().splitlines()) if named else draw(random.Random(seed), seconds)
    print(f"CHAOS_SEED={seed} CHAOS_SECONDS={seconds:g}: {len(faults)} faults", flush=True)
    for each in faults:
        print(f"  {each}")
    violations = Violations(partial(print, flush=True))
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="flagstaff-chaos-", ignore_cleanup_errors=True)
            )
        )
        run(stack, folder, faults, random.Random(f"{seed} commits"), violations)
    again = f"violations; again: CHAOS_SEED={seed} CHAOS_SECONDS={seconds:g} make chaos"
    print(f"{len(violations.texts)} {again}" if violations.texts else "held")
    return bool(violations.texts)


def run(
    stack: contextlib.ExitStack,
    folder: Path,
    faults: list[Fault],
    chance: random.Random,
    violations: Violations,
) -> None:
    """Everything, in a world of its own below `folder`."""
    plane = stack.enter_context(run_plane(find() or build(PLANE), folder / "plane"))
    install(plane)
    plane.kubectl("create", "namespace", NAMESPACE)
    spine = stack.enter_context(spine_in(plane, NAMESPACE, folder))
    spine.patch("flagsource", {"spec": {"interval": "2s", "timeout": "5s"}})
    commits = Commits(spine.repository, chance)
    world = ChaosWorld(spine, folder, violations)
    first = commits.good()
    world.start(stack, random.Random(chance.random()))
    observer = Observer(world, commits, violations)
    spine.wait_applied(first)
    for each in world.pods.values():
        each.port("ofrep")
        each.evaluator.next_event("flags served")
    with observer.watch():
        if missing := wait_settled(world, first, commits.newest.number, _FIRST_SECONDS):
            violations.add(f"before any fault: {missing}")
            return
        at_rest = count_held(world)
        commits.start()
        # What a thread starts ends with that thread.
        breaking = stack.enter_context(ThreadPoolExecutor(len(faults) or 1))
        mended = break_all(breaking, world, commits, faults, violations)
        last = commits.finish()
        over = time.monotonic()
        if missing := wait_settled(world, last, commits.newest.number, SETTLED_WITHIN):
            violations.add(f"{SETTLED_WITHIN:g} s after the last fault: {missing}")
        print(f"all current {time.monotonic() - over:.1f} s after the last fault", flush=True)
    for text in leaks(world, at_rest):
        violations.add(text)
    report(world, observer, commits, mended)
    report_held(world, at_rest)


def break_all(
    breaking: ThreadPoolExecutor,
    world: ChaosWorld,
    commits: Commits,
    faults: list[Fault],
    violations: Violations,
) -> dict[Fault, tuple[float, int]]:
    """Each fault at its time. When each was over, and the newest number that could be served then."""
    began = time.monotonic()
    mended: dict[Fault, tuple[float, int]] = {}

    def happen(fault: Fault) -> None:
        time.sleep(max(0.0, began + fault.at - time.monotonic()))
        try:
            with world.break_for(fault):
                time.sleep(fault.seconds)
        except Exception as error:  # noqa: BLE001 - a fault that cannot be made proves nothing, and is reported
            violations.add(f"{fault}: {type(error).__name__}: {error}"[:2000])
        mended[fault] = (time.monotonic(), commits.newest.number)

    list(breaking.map(happen, faults))
    return mended


def report(
    world: ChaosWorld, observer: Observer, commits: Commits, mended: dict[Fault, tuple[float, int]]
) -> None:
    """How much was checked, and how long the recoveries lasted."""
    answers = sum(each.checked for each in world.progress.values())
    print(f"{commits.total} commits, {answers} evaluations and {len(observer.versions)} versions checked")
    if world.without_disk:
        print(
            f"no file system could be mounted: files of no size stood for the disks of {world.without_disk}"
        )
    kinds = sorted({f"{each.kind} {each.target.partition('-')[0]}" for each in mended})
    for kind in kinds:
        seconds = [
            recovery(world, *moment)
            for fault, moment in mended.items()
            if f"{fault.kind} {fault.target.partition('-')[0]}" == kind
        ]
        print(
            f"  {kind:<22} {len(seconds):>3} times, all current after {statistics.median(seconds):.1f} s,"
            f" at most {max(seconds):.1f} s"
        )


def report_held(world: ChaosWorld, at_rest: dict[str, dict[str, int]]) -> None:
    """The most that a process holds beyond what it held at rest."""
    now = count_held(world)
    most = {what: max(now[name][what] - before[what] for name, before in at_rest.items()) for what in MORE}
    print("held more than at rest, at most: " + ", ".join(f"{count} {what}" for what, count in most.items()))


def recovery(world: ChaosWorld, over: float, number: int) -> float:
    """Seconds from the end of a fault until every evaluator served `number` or what came later."""
    reached = (
        min((at for at, seen in each.first_seen if seen >= number), default=float("inf"))
        for each in world.progress.values()
    )
    return max(0.0, max(reached) - over)


if __name__ == "__main__":
    sys.exit(main())
