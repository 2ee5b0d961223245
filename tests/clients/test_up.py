"""`flagstaff up` from a commit to a stock client's answer, and what happens when things go wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.server import until
from tests.clients.up import FLAGSTAFF, Up, banner, up
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

STALE = "flagstaff.dev/stale"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit("first", flags__json=banner("plain"))
    return made


def ofrep(port: int, key: str = "banner") -> dict[str, Any]:
    """One answer over OFREP, by curl."""
    url = f"http://127.0.0.1:{port}/ofrep/v1/evaluate/flags/{key}"
    done = subprocess.run(
        ["curl", "-s", "-X", "POST", url, "-d", '{"context":{}}'],
        capture_output=True, check=True, timeout=20,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def once(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [FLAGSTAFF, "up", str(repository), "--once", "--json", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def test_a_commit_reaches_a_client_and_names_itself(repository: Repository) -> None:
    with up(repository) as running:
        port = running.ready()["ofrep"]
        commit = repository.commit("party", flags__json=banner("party"))
        said = running.revision(commit)
        answer = ofrep(port)
    assert answer["value"] == "Hooray"
    assert answer["metadata"]["flagstaff.dev/revision"] == f"main@sha1:{commit}"
    assert (said["changed"], said["subject"], said["author"]) == (
        ["banner"], "party", "Ada <ada@example.com>",
    )  # fmt: skip


def test_a_broken_commit_is_refused_with_its_place_and_the_last_good_value_stays(
    repository: Repository,
) -> None:
    with up(repository) as running:
        port = running.ready()["ofrep"]
        said = running.revision(repository.commit("typo", flags__json=banner("prty")))
        assert ofrep(port)["value"] == "Welcome"
    assert said["held"] == ["banner"]
    problem = said["problems"][0]
    assert (problem["file"], problem["line"]) == ("flags.json", 9)
    assert "party" in problem["message"]


def test_a_commit_that_changes_no_flag_keeps_the_digest_and_the_revision_served(
    repository: Repository,
) -> None:
    with up(repository) as running:
        port = running.ready()["ofrep"]
        first = running.wait(lambda event: event["event"] == "revision")
        said = running.revision(repository.commit("readme", README__md="hello"))
        answer = ofrep(port)
    assert said["digest"] == first["digest"]
    assert answer["metadata"]["flagstaff.dev/revision"] == first["revision"]


def test_a_repository_that_vanishes_is_reported_and_its_flags_stay_until_it_is_back(
    repository: Repository, tmp_path: Path
) -> None:
    with up(repository, "--interval", "0.2") as running:
        port = running.ready()["ofrep"]
        repository.path.rename(tmp_path / "away")
        assert running.source("down")["message"]
        assert ofrep(port)["value"] == "Welcome"
        assert until(lambda: STALE in ofrep(port)["metadata"])
        (tmp_path / "away").rename(repository.path)
        running.source("up")
        assert until(lambda: STALE not in ofrep(port)["metadata"])
        running.revision(repository.commit("back", flags__json=banner("party")))
        assert ofrep(port)["value"] == "Hooray"


def test_last_good_is_served_at_a_restart_with_the_repository_gone(
    repository: Repository, tmp_path: Path
) -> None:
    state = ("--state-dir", str(tmp_path / "state"), "--interval", "0.2")
    with up(repository, *state) as running:
        running.ready()
        running.wait(lambda event: event["event"] == "revision")
        running.stop(signal.SIGKILL)
    shutil.rmtree(repository.path)
    with up(repository, *state) as running:
        ports = running.ready()
        running.source("down")
        assert ofrep(ports["ofrep"])["value"] == "Welcome"
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}/readyz") as answer:
            assert json.load(answer)["stale"]
        assert until(lambda: STALE in ofrep(ports["ofrep"])["metadata"])


def test_a_force_push_and_a_deleted_branch(repository: Repository) -> None:
    repository.git("branch", "release")
    with up(repository, "--ref", "release", "--interval", "0.2") as running:
        port = running.ready()["ofrep"]
        commit = repository.commit("party", flags__json=banner("party"))
        repository.git("branch", "-f", "release", commit)
        running.revision(commit)
        repository.git("branch", "-D", "release")
        assert "release" in running.source("down")["message"]
        assert ofrep(port)["value"] == "Hooray"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(banner("plain"), 0, id="good"),
        pytest.param(banner("nobody"), 1, id="bad"),
        pytest.param(banner("plain", defaultVarient="x"), 1, id="warned"),
    ],
)
def test_once_tells_by_its_exit_code(repository: Repository, text: str, wanted: int) -> None:
    repository.commit("change", flags__json=text)
    assert once(repository.path).returncode == wanted


def test_lenient_lets_warnings_pass(repository: Repository) -> None:
    repository.commit("change", flags__json=banner("plain", defaultVarient="x"))
    assert once(repository.path, "--lenient").returncode == 0


@pytest.mark.parametrize("arguments", [(), ("--ref", "nowhere")])
def test_once_without_a_source_exits_3(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "nothing"
    if arguments:
        Repository(path).commit(flags__json=banner("plain"))
    done = once(path, *arguments)
    assert done.returncode == 3
    assert json.loads(done.stdout)["state"] == "down"


def test_no_matching_file_is_a_problem_that_names_the_path(repository: Repository) -> None:
    done = once(repository.path, "--path", "nowhere")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"][0]["file"] == "nowhere"


def test_an_empty_repository_waits_and_serves_its_first_commit(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository")
    with up(made, "--interval", "0.2") as running:
        running.source("down")
        commit = made.commit("first", flags__json=banner("plain"))
        running.ready()
        assert running.revision(commit)["added"] == ["banner"]


def test_a_port_in_use_is_a_clear_error(repository: Repository) -> None:
    with up(repository) as running:
        port = running.ready()["grpc"]
        other = Up(repository.path, port=port)
        code = other.process.wait(20)
        assert code == 2
        assert str(port) in other.stop()


def test_a_password_in_the_source_is_shown_nowhere(tmp_path: Path) -> None:
    command = [FLAGSTAFF, "up", "https://ada:s3cret@127.0.0.1:1/flags.git", "--once"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=30, cwd=tmp_path
    )
    assert done.returncode == 3
    assert "127.0.0.1" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
