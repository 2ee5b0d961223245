"""Disks that are full and processes that are killed: the last good value is served, and nothing served is
ever lost.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.clients.asking import served_value
from tests.clients.server import until
from tests.clients.up import FLAGSTAFF, Up, banner, up
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.disks import Disk


@pytest.mark.long
@pytest.mark.parametrize("url", ["{}", "file://{}"], ids=["in-place", "mirrored"])
def test_a_full_state_folder_keeps_the_last_good_served_until_there_is_room(
    repository: Repository, disk: Disk, url: str, tmp_path: Path
) -> None:
    state = ("--state-dir", str(disk.folder / "state"), "--interval", "0.2")
    running = Up(url.format(repository.path), *state)
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(running.stop)
        port = running.ready()["ofrep"]
        disk.fill(running.process)
        commit = repository.commit("party", flags__json=banner("party"))
        message = running.source("down")["message"]
        assert served_value(port) == "Welcome"
        disk.empty(running.process)
        running.source("up")
        running.revision(commit)
        assert served_value(port) == "Hooray"
    assert any(os.strerror(number) in message for number in (errno.ENOSPC, errno.EFBIG)), message
    repository.path.rename(tmp_path / "gone")
    with up(url.format(repository.path), *state) as running:
        assert served_value(running.ready()["ofrep"]) == "Hooray"


@pytest.mark.long
def test_a_full_temporary_folder_is_a_source_that_is_down_and_not_the_end(
    repository: Repository, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(disk.folder))
    with up(repository, "--state-dir", str(tmp_path / "state"), "--interval", "0.2") as running:
        port = running.ready()["ofrep"]
        disk.fill(running.process)
        commit = repository.commit("party", flags__json=banner("party"))
        assert commit in running.source("down")["message"]
        assert served_value(port) == "Welcome"
        disk.empty(running.process)
        running.revision(commit)
        assert served_value(port) == "Hooray"


@pytest.mark.long
def test_a_report_that_cannot_be_written_does_not_end_the_serving(repository: Repository) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    others = ("--port", "0", "--sync-port", "0", "--management-port", "0")
    command = [FLAGSTAFF, "up", str(repository.path), "--json", "--ofrep-port", str(port), *others]
    with open("/dev/full", "w") as full, subprocess.Popen(command, stdout=full) as process:
        try:
            assert until(lambda: value_or_none(port) == "Welcome")
            repository.commit("party", flags__json=banner("party"))
            assert until(lambda: value_or_none(port) == "Hooray")
        finally:
            process.terminate()


def value_or_none(port: int) -> object:
    with contextlib.suppress(OSError, KeyError):
        return served_value(port)
    return None


def numbered_flags(number: int) -> str:
    flag = {"state": "ENABLED", "variants": {"now": number}, "defaultVariant": "now"}
    return json.dumps({"flags": {"banner": flag}})


class Committer:
    """Commits 1, 2, 3, … as the flag's value, and a broken definition after each, until the block ends."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.last = 0

    def _run(self) -> None:
        while not self._over.is_set():
            self.last += 1
            self._repository.commit(flags__json=numbered_flags(self.last))
            self._repository.commit(flags__json=numbered_flags(-self.last)[:-5])

    def __enter__(self) -> Committer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.faults
def test_a_process_killed_at_any_moment_restarts_with_nothing_older_than_it_served(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=numbered_flags(0))
    state = tmp_path / "state"
    moments = random.Random(20261121)
    seen, errors = 0, ""
    with Committer(repository) as committing:
        for life in range(15):
            running = Up(repository.path, "--state-dir", str(state))
            try:
                if life % 3 == 2:
                    time.sleep(moments.uniform(0.2, 0.9))
                    continue
                port = running.ready()["ofrep"]
                assert seen <= served_value(port) <= committing.last
                time.sleep(moments.uniform(0, 0.3))
                seen = served_value(port)
            finally:
                errors += running.stop(signal.SIGKILL)
    repository.path.rename(tmp_path / "gone")
    with up(repository.path, "--state-dir", str(state)) as running:
        assert 0 < seen <= served_value(running.ready()["ofrep"]) <= committing.last
    # A machine that is busy holds up the loop; that is no fault.
    assert [line for line in errors.splitlines() if "evaluator.host.loop_lag" not in line] == []
    assert not list(state.rglob("*.damaged"))
