from __future__ import annotations

import asyncio
import base64
import errno
import os
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.addresses import parse_location
from controller.api.parsing import InvalidTextError
from controller.runtime.limited_child import MAX_COMPLAINT, ProcessLimits, run
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.deadline import Deadline
from controller.sources.git_credentials import Credentials, explain, is_damage, limit_of, reason_of
from controller.sources.git_program import BrokenMirrorError, GitProgram
from tests.git_http import GitServer, command_lines, git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "s3cr3t+/token"  # noqa: S105 - it guards nothing
ME = Credentials("me", SECRET)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json="1")
    return repository


@pytest.fixture
def server(tmp_path: Path, repository: Repository) -> Iterator[GitServer]:
    with git_server(tmp_path, login=f"me:{SECRET}") as running:
        assert repository.path.parent == running.root
        yield running


def program(location: str, credentials: Credentials | None = None, timeout: float = 30.0) -> GitProgram:
    place = parse_location(location)
    return GitProgram(place, credentials, Deadline(timeout, place.shown))


def refusal_of(asked: GitProgram) -> Failed:
    with pytest.raises(Failed) as setback:
        asyncio.run(asked.list_references())
    return setback.value


def test_references_are_listed_over_http_with_credentials(server: GitServer) -> None:
    listing = asyncio.run(program(f"{server.url}/repository/.git", ME).list_references())
    assert "ref: refs/heads/main\tHEAD" in listing


def git_processes(url: str) -> list[str]:
    return [line for line in command_lines() if url in line]


async def test_a_look_that_is_cancelled_leaves_no_process_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        asked = asyncio.create_task(program(url, timeout=600.0).list_references())
        connected, _ = await asyncio.to_thread(silent.accept)
        with connected:
            assert await asyncio.to_thread(git_processes, url)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert not await asyncio.to_thread(git_processes, url)


async def test_steps_of_one_look_share_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        asked = program(url, timeout=0.3)
        for _ in range(2):
            with pytest.raises(Failed, match=r"within 0\.3 seconds"):
                await asked.list_references()
        assert asked.deadline.left == 0.0


def test_credentials_are_in_no_argument_of_any_process(server: GitServer) -> None:
    asyncio.run(program(f"{server.url}/repository/.git", ME).list_references())
    assert any("ls-remote" in line for line in server.command_lines)
    written = (SECRET, quote(SECRET), base64.b64encode(f"me:{SECRET}".encode()).decode())
    assert not [line for line in server.command_lines if any(text in line for text in written)]
    asked = len(server.command_lines)
    with pytest.raises(InvalidTextError, match="a token belongs into the Secret"):
        asyncio.run(program(f"{server.url}/repository/.git?token={quote(SECRET)}").list_references())
    assert len(server.command_lines) == asked


@pytest.mark.parametrize("credentials", [None, Credentials("me", "wr0ng-one"), Credentials("wr0ng-one")])
def test_wrong_credentials_are_refused_and_not_repeated(
    server: GitServer, credentials: Credentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    setback = refusal_of(program(f"{server.url}/repository/.git", credentials))
    assert setback.reason == "AuthenticationFailed"
    assert "wr0ng-one" not in setback.message + caplog.text


def test_credentials_do_not_follow_a_redirect_to_another_origin(tmp_path: Path, server: GitServer) -> None:
    with git_server(tmp_path) as first:
        first.redirect_to = server.url
        setback = refusal_of(program(f"{first.url}/repository/.git", ME))
    assert setback.reason == "AuthenticationFailed"
    assert server.paths
    assert not any(server.authorizations)


@pytest.mark.parametrize("remote", [True, False], ids=["http", "folder"])
def test_a_missing_repository_is_not_found(server: GitServer, tmp_path: Path, remote: bool) -> None:
    location = f"{server.url}/nowhere" if remote else str(tmp_path / "nowhere")
    setback = refusal_of(program(location, ME))
    assert setback.reason == "RepositoryNotFound"
    assert location in setback.message


@pytest.mark.parametrize(
    ("complaint", "broken"),
    [
        ("fatal: bad object refs/kept/x", True),
        ("fatal: Unable to create '/m/shallow.lock': File exists.", True),
        ("error: cannot lock ref 'refs/kept/x': reference broken", True),
        ("remote: fatal: bad object HEAD\nfatal: the remote end hung up unexpectedly", False),
        ("fatal: unable to access 'https://h/r': Could not resolve host: h", False),
    ],
)
def test_damage_here_is_distinguished_from_damage_at_the_remote(complaint: str, broken: bool) -> None:
    assert is_damage(complaint) is broken


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        ("Host key verification failed.\nfatal: Could not read from remote.", "HostKeyRefused"),
        ("git@h: Permission denied (publickey).", "AuthenticationFailed"),
        ("fatal: 'https://h/r': The requested URL returned error: 403", "AuthenticationFailed"),
        ("ERROR: Repository not found.\nfatal: Could not read from remote.", "RepositoryNotFound"),
        ("fatal: remote error: upload-pack: not our ref abc", "RevisionGone"),
        ("fatal: couldn't find remote ref refs/heads/x", "RevisionGone"),
        ("ssh: connect to host h port 22: Connection refused", "GitOperationFailed"),
        ("error: unable to write file x: No space left on device\nfatal: fetch-pack failed", "StorageFull"),
        (
            "remote: fatal: No space left on device\nfatal: remote error: No space left on device",
            "GitOperationFailed",
        ),
    ],
)
def test_a_complaint_becomes_a_reason(complaint: str, reason: str) -> None:
    assert reason_of(complaint) == reason


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "<html>\n\t<p>Sign in\n</html>\n", ""])
def test_a_web_page_in_place_of_a_repository_is_named(server: GitServer, page: str) -> None:
    server.page = page
    setback = refusal_of(program(f"{server.url}/repository/.git", ME))
    assert setback.reason == "RepositoryNotFound"
    assert "the answer is not that of a Git server" in setback.message


def test_a_repository_without_commits_lists_nothing(server: GitServer, tmp_path: Path) -> None:
    Repository(tmp_path / "new")
    assert asyncio.run(program(f"{server.url}/new/.git", ME).list_references()) == ""


def test_a_server_that_is_not_there_fails(tmp_path: Path) -> None:
    with git_server(tmp_path) as gone:
        url = gone.url
    assert refusal_of(program(f"{url}/r")).reason == "GitOperationFailed"


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/r"
        setback = refusal_of(program(url, timeout=0.3))
    assert (setback.reason, "within 0.3 seconds" in setback.message) == ("Timeout", True)


def test_an_endless_listing_is_cut_off(repository: Repository) -> None:
    asked = replace(program(str(repository.path)), limits=ProcessLimits(output_bytes=10))
    with pytest.raises(Stalled, match="more than 10 bytes of references") as setback:
        asyncio.run(asked.list_references())
    assert setback.value.reason == "LimitExceeded"


def test_a_callers_environment_has_no_say(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    rewrite = '[url "/nowhere"]\n\tinsteadOf = ' + str(repository.path)
    (tmp_path / "home" / ".gitconfig").write_text(rewrite)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'protocol.allow=never'")
    assert "refs/heads/main" in asyncio.run(program(str(repository.path)).list_references())
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("hostile", ["ext::sh -c touch% {}", "--upload-pack=touch {}"])
def test_even_an_unread_location_runs_nothing(tmp_path: Path, hostile: str) -> None:
    location = parse_location("https://h/r")
    object.__setattr__(location, "url", hostile.format(tmp_path / "touched"))
    with pytest.raises(Failed):
        asyncio.run(GitProgram(location, None, Deadline(30.0, location.shown)).list_references())
    assert not (tmp_path / "touched").exists()


def test_a_hook_of_the_mirror_is_not_run(repository: Repository, tmp_path: Path) -> None:
    mirror = Repository(tmp_path / "mirror")
    hook = mirror.path / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'touched'}\n")
    hook.chmod(0o755)
    asyncio.run(program(str(repository.path)).fetch(mirror.path / ".git", "+refs/heads/main:refs/kept/x"))
    assert not (tmp_path / "touched").exists()


def test_a_damaged_mirror_is_not_the_remotes_fault(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    with pytest.raises(BrokenMirrorError):
        asyncio.run(program(str(repository.path)).fetch(tmp_path / "mirror", "+HEAD:refs/kept/x"))


def test_without_git_a_human_must_install_it(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(Stalled) as setback:
        asyncio.run(program(str(repository.path)).list_references())
    assert setback.value.reason == "GitMissing"


def test_a_full_disk_fails_before_a_key_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("controller.sources.git_program.secret_files", full)
    setback = refusal_of(program("h:r", Credentials(ssh_key="KEY")))
    assert (setback.reason, "No space left" in setback.message) == ("StorageOperationFailed", True)


@pytest.mark.parametrize(
    ("complaint", "text"),
    [
        ("fatal: unable to access 'https://me:x@h/r'", "fatal: unable to access 'https://h/r'"),
        ("fatal: unable to access 'https://h/r?token=x'", "fatal: unable to access 'https://h/r'"),
        (f"fatal: {SECRET} is wrong", "fatal: *** is wrong"),
        (f"fatal: {quote(SECRET, safe='')} is wrong", "fatal: *** is wrong"),
        ("warning: noise\nremote: No.\nfatal: it failed\n", "fatal: it failed"),
        ("remote: a body\nremote: Repository not found.\n", "git gave no reason"),
        ("remote: \x0bfatal: a body\u2028fatal: a body\n", "git gave no reason"),
        ("<html>a body</html>\n", "git gave no reason"),
        ("fatal: remote error: a body", "fatal: remote error"),
        ("fatal: remote error: access denied to a body", "fatal: remote error: access denied"),
        ("fatal: protocol error: expected sha/ref, got 'a body'",
         "fatal: protocol error: expected sha/ref, got"),
        ("fatal: protocol error: bad line length character: body",
         "fatal: protocol error: bad line length character"),
        ("ERROR: Repository not found. A body.\nfatal: Could not read.",
         "Repository not found; fatal: Could not read."),
        ("git@h: Permission denied (publickey).", "Permission denied (publickey)"),
        ("error: a\nerror: b\nerror: c\nfatal: d", "error: b; error: c; fatal: d"),
        ("ssh: no route\n", "ssh: no route"),
        (
            "fatal: unable to access 'https://h/r': Failed to connect to h port 443 after "
            "130 ms: Couldn't connect",
            "fatal: unable to access 'https://h/r': Failed to connect to h port 443: Couldn't connect",
        ),
        ("fatal: Connection timed out after 300012 milliseconds", "fatal: Connection timed out"),
        ("fatal: \x1b[2J gone", "fatal:  [2J gone"),
        ("", "git gave no reason"),
    ],
)  # fmt: skip
def test_a_complaint_is_shown_without_secrets_on_one_line(complaint: str, text: str) -> None:
    assert explain(complaint, ME) == text


@settings(max_examples=200)
@given(st.text(max_size=30), st.sampled_from(["", "://", "\n", "fatal: "]), st.text(max_size=30))
def test_no_complaint_shows_a_password(before: str, between: str, after: str) -> None:
    text = explain(f"{before}{between}{SECRET}{after}", ME)
    assert SECRET not in text
    assert text.isprintable()
    assert len(text) <= 300


@pytest.mark.parametrize(
    ("complaint", "limit"),
    [
        ("error: index-pack died of signal 25\nfatal: fetch-pack: invalid index-pack output", "file size"),
        ("error: index-pack died of signal 24", "CPU time"),
        ("fatal: Out of memory, malloc failed (tried to allocate 900000001 bytes)", "memory"),
        ("remote: fatal: Out of memory, malloc failed\nfatal: the remote end hung up", None),
    ],
)
def test_the_limit_that_git_met_is_named(complaint: str, limit: str | None) -> None:
    assert limit_of(complaint) == limit


async def test_a_start_that_is_cancelled_leaves_no_process_behind() -> None:
    seconds = f"60.{os.getpid()}"
    running = asyncio.create_task(run(("sleep", seconds), os.environ, ProcessLimits(), 10.0))
    for _ in range(2):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await asyncio.to_thread(git_processes, seconds)


async def test_a_start_that_is_cancelled_twice_leaves_no_process_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, cancelled = threading.Event(), threading.Event()

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            started.set()
            cancelled.wait(60.0)

    monkeypatch.setattr("controller.runtime.limited_child.Popen", Slow)
    seconds = f"600.{os.getpid()}"
    running = asyncio.create_task(run(("sleep", seconds), os.environ, ProcessLimits(), 10.0))
    assert await asyncio.to_thread(started.wait, 60.0)
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await running
    cancelled.set()
    async with asyncio.timeout(60.0):
        while await asyncio.to_thread(git_processes, seconds):  # noqa: ASYNC110 - the kernel ends it
            await asyncio.sleep(0.01)


async def test_a_program_waits_for_no_other_work_in_threads() -> None:
    freed = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    other = asyncio.create_task(asyncio.to_thread(freed.wait, 120.0))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60.0):
            ended = await run(("echo", "done"), os.environ, ProcessLimits(), 10.0)
        assert ended.output == b"done\n"
    finally:
        freed.set()
        await other


async def test_a_start_that_waits_for_its_turn_is_cancelled_at_once(tmp_path: Path) -> None:
    freed = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        busy.submit(freed.wait, 120.0)
        touched = tmp_path / "touched"
        running = asyncio.create_task(run(("touch", str(touched)), os.environ, ProcessLimits(), 10.0, busy))
        try:
            await asyncio.sleep(0)
            running.cancel()
            done, _ = await asyncio.wait([running], timeout=60.0)
        finally:
            freed.set()
    assert done
    assert running.cancelled()
    assert not touched.exists()


def test_only_the_end_of_a_flood_of_complaints_is_kept(repository: Repository) -> None:
    script = "yes remote: noise | head -c 100000 >&2; echo fatal: the cause >&2; exit 3"
    ended = asyncio.run(run(("sh", "-c", script), os.environ, ProcessLimits(), 10.0))
    assert ended.status == 3
    assert len(ended.complaint) <= MAX_COMPLAINT
    assert ended.complaint.endswith("fatal: the cause\n")
    assert ended.complaint.startswith("remote: noise\n")


GREEDY = {
    "memory": ("python3 -c 'bytearray(400_000_000)' 2>/dev/null; echo $?", "1\n"),
    "file size": ('head -c 2000000 /dev/zero > "$0"; echo $?', "153\n"),
    "CPU time": ("(while :; do :; done); echo $?", "152\n"),
}


@pytest.mark.parametrize("limit", GREEDY)
def test_a_child_is_limited(tmp_path: Path, limit: str) -> None:
    script, status = GREEDY[limit]
    limits = ProcessLimits(memory_bytes=200_000_000, file_bytes=1_000_000)
    ended = asyncio.run(run(("sh", "-c", script, str(tmp_path / "file")), os.environ, limits, 1.0))
    assert ended.output.decode() == status
