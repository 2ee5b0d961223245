"""A server of all kinds of flags; disks that can be filled; the durations of recoveries, printed at the end
of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients import up
from tests.clients.disks import Limited, SmallDisk
from tests.clients.server import Server, banner
from tests.repositories import Repository
from tests.volumes import small_volume
from tests.worlds import evaluator as fakes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.clients.disks import Disk


@pytest.fixture
def shop() -> Iterator[Server]:
    """Flags of every type, and a banner."""
    running = Server(fakes.flag_set(*fakes.ALL, banner("plain"), flagSetId="shop"))
    yield running
    running.close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One with the banner; a module that needs another one has its own."""
    made = Repository(tmp_path / "repository")
    made.commit("first", flags__json=up.banner("plain"))
    return made


@pytest.fixture(params=["space", "files", "quota"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    if request.param == "quota":
        folder.mkdir()
        yield Limited(folder)
        return
    size = "size=1m" if request.param == "space" else "size=1m,nr_inodes=64"
    with small_volume(folder, size):
        yield SmallDisk(folder, each=4096 if request.param == "space" else 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line a recovery, whichever process of a parallel run it was measured in."""
    reports = terminalreporter.stats.get("passed", [])
    lines = [str(what) for each in reports for name, what in each.user_properties if name == "recovery"]
    if lines:
        terminalreporter.section("recovery")
        for line in sorted(lines):
            terminalreporter.line(line)
