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


@pytest.mark.parametrize(
    ("text", "options", "wanted"),
    [
        pytest.param(banner("plain"), (), 0, id="good"),
        pytest.param(banner("nobody"), (), 1, id="bad"),
        pytest.param(banner("plain", defaultVarient="x"), (), 1, id="warned"),
        pytest.param(banner("plain", defaultVarient="x"), ("--lenient",), 0, id="warned and lenient"),
    ],
)
def test_the_exit_code_of_once_says_whether_the_flags_are_valid(
    repository: Repository, text: str, options: tuple[str, ...], wanted: int
) -> None:
    repository.commit("change", flags__json=text)
    assert once(repository.path, *options).returncode == wanted


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


def test_a_port_in_use_is_a_clear_error(repository: Repository) -> None:
    with up(repository) as running:
        port = running.ready()["grpc"]
        other = Up(repository.path, port=port)
        assert other.process.wait(20) == 2
        advice = "choose another with --port, or 0 for any free one"
        assert other.stop() == f"flagstaff up: port {port} is already in use; {advice}\n"


def run_refused(*command: str | Path) -> tuple[int, str]:
    """Exit code and standard error of a `flagstaff up` that ends by itself."""
    words = [FLAGSTAFF, "up", *map(str, command), "--port", "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    return done.returncode, done.stderr


@pytest.mark.long
def test_a_state_folder_serves_no_other_repository_and_no_other_paths(
    repository: Repository, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with up(repository, "--state-dir", str(state)) as running:
        running.ready()
    kept = f"--state-dir {state} holds the flags of file://{repository.path}"
    for other in ((tmp_path / "another",), (repository.path, "--path", "x"), (repository.path, "--ref", "x")):
        code, said = run_refused(*other, "--state-dir", state)
        assert (code, kept in said, "give another folder" in said) == (3, True, True)


@pytest.mark.long
def test_a_state_folder_is_for_one_process_at_a_time(repository: Repository, tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with up(repository, *state) as running:
        running.ready()
        code, said = run_refused(repository.path, *state)
    assert (code, "is in use by another process" in said) == (3, True)


def test_a_port_beyond_65535_is_refused(repository: Repository) -> None:
    code, said = run_refused(repository.path, "--sync-port", "99999")
    assert code == 2
    assert said.startswith("flagstaff up: --sync-port: '99999' is not a port")


@pytest.mark.parametrize("kept", [False, True], ids=["nothing kept", "a last good flag set"])
def test_a_refused_revision_says_whether_anything_is_served(
    repository: Repository, tmp_path: Path, kept: bool
) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    if kept:
        with up(repository, *state) as running:
            running.ready()
            running.wait(lambda event: event["event"] == "revision")
    repository.commit("broken", flags__json="{")
    command = [FLAGSTAFF, "up", str(repository.path), "--once", *state]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    wanted = "the last good flag set is still served" if kept else "so nothing is served"
    assert (done.returncode, wanted in done.stdout) == (1, True)


def test_paths_that_match_nothing_are_answered_with_what_to_pass(tmp_path: Path) -> None:
    made = Repository(tmp_path / "layers")
    for name in ("flags/base/a.json", "flags/overlays/staging/a.json", "deploy/x.yaml"):
        made.write(name, banner("plain"))
    made.commit()
    said = [
        json.loads(once(made.path, *more).stdout)["problems"][0]["message"]
        for more in ((), ("--path", "flags/basee"))
    ]
    assert said[0].endswith("such as: --path flags/base --path flags/overlays/staging")
    assert "did you mean flags/base" in said[1]


@pytest.mark.long
@pytest.mark.parametrize("guarded", [False, True], ids=["served with a warning", "refused by --prune-guard"])
def test_a_commit_that_removes_every_flag(repository: Repository, guarded: bool) -> None:
    with up(repository, *(["--prune-guard"] if guarded else [])) as running:
        port = running.ready()["ofrep"]
        said = running.revision(repository.commit("gone", flags__json=json.dumps({"flags": {}})))
        answer = ofrep(port)
    if guarded:
        assert [problem["code"] for problem in said["problems"]] == ["prune-guard"]
        assert answer["value"] == "Welcome"
    else:
        assert (said["removed"], answer["errorCode"]) == (["banner"], "FLAG_NOT_FOUND")


@pytest.mark.long
@pytest.mark.parametrize(("detail", "author"), [("full", "Ada <ada@example.com>"), ("commit", None)])
def test_provenance_without_the_author(repository: Repository, detail: str, author: str | None) -> None:
    with up(repository, "--provenance", detail) as running:
        metadata = ofrep(running.ready()["ofrep"])["metadata"]
    assert metadata["flagstaff.dev/revision"].startswith("main@sha1:")
    assert metadata.get("flagstaff.dev/author") == author


@pytest.mark.long
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [("http://localhost:3000", True), ("http://127.0.0.1:8080", True), ("https://example.com", False)],
)
def test_only_pages_of_this_machine_may_read_answers(
    repository: Repository, origin: str, allowed: bool
) -> None:
    with up(repository) as running:
        request = urllib.request.Request(
            f"http://127.0.0.1:{running.ready()['ofrep']}/ofrep/v1/evaluate/flags/banner",
            b"{}", {"Origin": origin},
        )  # fmt: skip
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - loopback
            assert (answer.headers["Access-Control-Allow-Origin"] == origin) is allowed


def test_a_password_in_the_source_is_shown_nowhere(tmp_path: Path) -> None:
    command = [FLAGSTAFF, "up", "https://ada:s3cret@127.0.0.1:1/flags.git", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, cwd=tmp_path)
    assert done.returncode == 3
    assert "127.0.0.1" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
