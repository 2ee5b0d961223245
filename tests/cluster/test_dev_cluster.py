"""`make dev-cluster`, as a person meets it: it says ready, what it prints to try works, and Ctrl-C takes all
of it down.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.plugin import ROOT

if TYPE_CHECKING:
    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PATIENCE = 90.0
EXPECTED = (
    "the cluster has none, so it runs no pods",
    "flagset.flagstaff.dev/checkout-production", "Applied revision", " 3/3 ", "name: flagstaff-evaluator",
    "flagstaff.dev/direct-set: storefront", "condition met",
    "flagstaff.dev/orders=shop+shop/checkout-staging", "", "",
    "3 of 3 evaluators serve", "3/3", "shop/checkout-1 (claimed)",
    "banner-text", "christmas", '"Merry Christmas"', "",
)  # fmt: skip
"""In what each line prints that is to be tried."""


def test_dev_cluster_is_ready_does_what_it_says_and_goes(cluster: Plane, tmp_path: Path) -> None:
    assert cluster.kubeconfig.exists()
    folder = tmp_path / "dev"
    process = dev_cluster(folder)
    try:
        lines = until_ready(process)
        assert process.poll() is None
        commands = [line.strip() for line in lines if line.startswith("    ")]
        assert [shlex.split(each)[0].rpartition("/")[2] for each in commands] == [
            "export", "flagstaff", *["kubectl"] * 7, "sed", "git", *["flagstaff"] * 5,
            "curl", "kill", "kubectl",
        ]  # fmt: skip
        exported, *tried, watching = commands
        printed = [run(f"{exported}\n{each}") for each in tried]
        assert "banner-text" in page_of(lines)
        for number, text in enumerate(EXPECTED):
            assert text in printed[number], tried[number]
        wait_for(f"{exported}\n{watching.removesuffix(' -w')}", " 2/3 ")
        children = below(process.pid)
        assert children
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
    assert code == 0
    assert not folder.exists()
    wait_until_gone(children)


def test_a_dev_cluster_that_is_killed_leaves_nothing_running(cluster: Plane, tmp_path: Path) -> None:
    assert cluster.kubeconfig.exists()
    process = dev_cluster(tmp_path / "dev")
    try:
        until_ready(process)
        children = below(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert len(children) > 6
    wait_until_gone(children)


def dev_cluster(folder: Path) -> subprocess.Popen[str]:
    """What `make dev-cluster` starts."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.dev", str(folder)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def until_ready(process: subprocess.Popen[str]) -> list[str]:
    """What it prints before it is ready."""
    assert process.stdout is not None
    return list(itertools.takewhile(lambda line: line != "ready\n", process.stdout))


def page_of(lines: list[str]) -> str:
    """The view of flags at the address that was printed; browsers know that `*.localhost` is loopback."""
    (found,) = filter(None, (re.search(r"http://(\w+\.localhost:(\d+))(/ui)$", line) for line in lines))
    connection = HTTPConnection("127.0.0.1", int(found[2]), timeout=30)
    with contextlib.closing(connection):
        path = f"{found[3]}?set=shop/checkout-production"
        connection.request("GET", path, headers={"Host": found[1]})
        return connection.getresponse().read().decode()


def run(command: str) -> str:
    """What a line that was printed prints."""
    environment = {**os.environ, "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.com"}
    environment |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.com"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )  # fmt: skip
    return done.stdout


def wait_for(command: str, text: str) -> None:
    """Until the command prints `text`."""
    until = time.monotonic() + 30
    while text not in (found := run(command)):
        assert time.monotonic() < until, found[-2000:]
        time.sleep(0.2)


def wait_until_gone(processes: list[int]) -> None:
    """A helper ends when the pipe from its killed controller does, a moment after it."""
    until = time.monotonic() + PATIENCE
    while left := [each for each in processes if Path(f"/proc/{each}").exists()]:
        assert time.monotonic() < until, left
        time.sleep(0.1)


def below(process: int) -> list[int]:
    """All processes that this one started, and those that they did."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread, or a whole process, may end while it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                found += [int(child), *below(int(child))]
    return found
