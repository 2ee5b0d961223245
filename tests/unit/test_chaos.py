"""The judge of chaos runs finds what it is there to find, and a seed draws the same again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from controller.runtime.clock import now
from tests.chaos.clocks import OFF_BY, Clock
from tests.chaos.commits import Content
from tests.chaos.faults import TARGETS, draw, read
from tests.chaos.judging import SAVED_AGAIN_WITHIN, SAVED_WITHIN, Progress, contradiction
from tests.cluster.patience import within

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = {"good": Content(3), "held": Content(4, broken=True), "unreadable": None}


def values(number: int, twin: int, careful: int) -> dict[str, object]:
    return {"number": number, "twin": twin, "careful": careful}


def test_a_seed_draws_the_same_faults_and_they_are_read_as_they_are_written() -> None:
    drawn = draw(random.Random("1"), 300.0)
    assert drawn == draw(random.Random("1"), 300.0) == read(list(map(str, drawn)))
    every = {(kind, target) for kind, targets in TARGETS.items() for target in targets}
    assert {(each.kind, each.target) for each in drawn} == every
    assert max(each.until for each in drawn) <= 300.0


def test_a_target_has_one_fault_at_a_time() -> None:
    drawn = draw(random.Random("1"), 300.0)
    for target in {each.target for each in drawn}:
        befell = [each for each in drawn if each.target == target]
        assert all(before.until <= after.at for before, after in pairwise(befell))


@pytest.mark.parametrize("kind", OFF_BY)
def test_a_clock_is_set_while_its_process_runs_and_no_monotonic_one(tmp_path: Path, kind: str) -> None:
    clock = Clock(tmp_path)
    clocks = "time.time(), datetime.datetime.now().timestamp(), time.monotonic()"
    reads = f"import datetime, sys, time\nfor _ in sys.stdin: print({clocks}, flush=True)"
    command, environ = [sys.executable, "-c", reads], {**os.environ, **clock.environ}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def off_by() -> list[int]:
            """Days by which its two wall clocks and its monotonic one differ from ours."""
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            ours = (now().timestamp(), now().timestamp(), time.monotonic())
            found = map(float, process.stdout.readline().split())
            return [round((each - our) / 86_400) for each, our in zip(found, ours, strict=True)]

        for days in (round(OFF_BY[kind] / 86_400), 0):
            clock.set(days * 86_400.0)
            wanted = [days, days, 0]
            within(lambda: off_by() == wanted)  # noqa: B023 - called within the turn
        assert process.stdin is not None
        process.stdin.close()


def test_a_fault_that_cannot_befall_its_target_is_refused() -> None:
    with pytest.raises(ValueError, match="expire etcd"):
        read(["1 expire etcd 1"])


@pytest.mark.parametrize(
    ("found", "commit"), [(values(3, 3, 3), "good"), (values(4, 4, 3), "held"), (values(4, 4, 1), "held")]
)
def test_what_a_commit_says_is_no_contradiction(found: dict[str, object], commit: str) -> None:
    assert not contradiction(found, f"main@sha1:{commit}", COMMITS)


@pytest.mark.parametrize(
    ("found", "commit"),
    [
        (values(2, 2, 2), "good"), (values(3, 2, 3), "good"), (values(3, 3, 2), "good"),
        (values(4, 4, 4), "held"), (values(3, 3, 3), "unreadable"), (values(3, 3, 3), "nobody's"),
        ({}, "good"),
    ],
)  # fmt: skip
def test_anything_else_is(found: dict[str, object], commit: str) -> None:
    assert contradiction(found, f"main@sha1:{commit}", COMMITS)


class Evaluator(Progress):
    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(lambda: self.now)

    def after(self, seconds: float, *numbers: int) -> list[str]:
        self.now += seconds
        return [self.see(each) for each in numbers]


def test_an_older_number_is_reported() -> None:
    assert Evaluator().after(0, 1, 2, 2, 1) == ["", "", "", "1 was served after 2"]


@pytest.mark.parametrize(("seconds", "lost"), [(SAVED_WITHIN + 0.1, True), (SAVED_WITHIN - 0.1, False)])
def test_what_had_time_to_be_saved_outlives_a_kill(seconds: float, lost: bool) -> None:
    ours = Evaluator()
    ours.after(0, 1)
    ours.after(5, 2)
    ours.now += seconds
    ours.restart()
    assert ours.after(1, 1) == (["1 was served after 2"] if lost else [""])


def test_nothing_is_saved_on_a_full_disk_or_while_frozen() -> None:
    ours = Evaluator()
    ours.after(0, 1)
    ours.after(2)
    ours.disk(full=True)
    ours.after(1, 2)
    ours.after(60)
    ours.disk(full=False)
    ours.thaw()
    ours.restart()
    assert ours.after(0, 0, 1, 2) == ["0 was served after 1", "", ""]
    ours.after(SAVED_AGAIN_WITHIN)
    ours.restart()
    assert ours.after(0, 1) == ["1 was served after 2"]
