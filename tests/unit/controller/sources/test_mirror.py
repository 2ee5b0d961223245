from __future__ import annotations

import asyncio
import fcntl
import multiprocessing
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest

from controller.api.addresses import parse_location
from controller.runtime.limited_child import ProcessLimits
from controller.runtime.setbacks import Failed, Stalled
from controller.sources import mirror as mirror_module
from controller.sources.backend import Revision, TreeLimits
from controller.sources.deadline import Deadline, ThreadTasks
from controller.sources.git_commits import Checkout, CommitReader
from controller.sources.git_credentials import Credentials
from controller.sources.git_program import GitProgram, is_crowded
from controller.sources.git_references import Reference
from controller.sources.mirror import UNUSED, Mirror, remove_unused, sweep_mirrors
from tests.git_http import GitServer, git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from pathlib import Path

    from controller.sources.backend import Fetched


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", a__json="1")
    return repository


@pytest.fixture
def server(tmp_path: Path, repository: Repository) -> Iterator[GitServer]:
    with git_server(repository.path.parent) as running:
        yield running


@pytest.fixture
def mirror(tmp_path: Path, server: GitServer) -> Mirror:
    return a_mirror(tmp_path, server)


def a_mirror(
    tmp_path: Path, server: GitServer, credentials: Credentials | None = None, timeout: float = 30
) -> Mirror:
    location = parse_location(f"{server.url}/repository/.git")
    return Mirror(tmp_path / "mirrors", GitProgram(location, credentials, Deadline(timeout, location.shown)))


def write_files(mirror: Mirror, oid: str, into: Path, reference: str = "main") -> str:
    into.mkdir()
    read(mirror, Checkout(Revision("main", f"sha1:{oid}"), into), reference)
    return (into / "a.json").read_text()


def read(mirror: Mirror, checkout: Checkout, reference: str | None = None) -> None:
    asyncio.run(mirror.read(Reference.parse(reference), checkout, CommitReader(ThreadTasks())))


def tip(repository: Repository) -> str:
    return repository.git("rev-parse", "HEAD")


def damage_objects(mirror: Path) -> None:
    for file in (mirror / "objects").rglob("*"):
        if file.is_file():
            file.chmod(0o600)
            file.write_bytes(b"damaged")


def damage_references(mirror: Path) -> None:
    for file in (mirror / "refs").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")


def leave_a_lock(mirror: Path) -> None:
    (mirror / "shallow.lock").touch()


def damage_everything(mirror: Path) -> None:
    shutil.rmtree(mirror)
    mirror.mkdir()


def test_what_is_here_already_is_not_asked_for_again(
    mirror: Mirror, server: GitServer, repository: Repository, tmp_path: Path
) -> None:
    assert write_files(mirror, tip(repository), tmp_path / "1") == "1"
    asked = len(server.fetches)
    assert write_files(mirror, tip(repository), tmp_path / "2") == "1"
    assert len(server.fetches) == asked


def test_history_is_not_fetched(mirror: Mirror, repository: Repository, tmp_path: Path) -> None:
    for number in range(5):
        repository.commit("more", a__json=str(number))
        write_files(mirror, tip(repository), tmp_path / str(number))
    first = repository.git("rev-list", "--max-parents=0", "HEAD")
    with pytest.raises(subprocess.CalledProcessError):
        repository.git(f"--git-dir={mirror.path}", "cat-file", "-e", first)
    # The newest is reachable on its own: its parent is beyond the shallow border.
    reachable = repository.git(f"--git-dir={mirror.path}", "rev-list", "--all")
    assert reachable == tip(repository)


def test_a_mirror_with_many_objects_is_crowded_and_still_fetched_into(
    mirror: Mirror, repository: Repository, tmp_path: Path
) -> None:
    write_files(mirror, tip(repository), tmp_path / "1")
    assert not is_crowded(mirror.path)
    folder = mirror.path / "objects" / "17"
    folder.mkdir(exist_ok=True)
    for number in range(30):
        (folder / f"tmp_obj_{number}").touch()
    assert is_crowded(mirror.path)
    repository.commit("second", a__json="2")
    assert write_files(mirror, tip(repository), tmp_path / "2") == "2"


def test_each_identity_has_a_mirror_of_its_own(tmp_path: Path, server: GitServer) -> None:
    askers = (None, Credentials("a", "1"), Credentials("a", "2"))
    paths = {a_mirror(tmp_path, server, credentials).path for credentials in askers}
    assert len(paths) == 3


@pytest.mark.parametrize("damage", [damage_objects, damage_references, damage_everything, leave_a_lock])
@pytest.mark.parametrize("moved", [False, True], ids=["same revision", "new revision"])
def test_a_damaged_mirror_is_rebuilt(
    mirror: Mirror, repository: Repository, tmp_path: Path, damage: object, moved: bool
) -> None:
    write_files(mirror, tip(repository), tmp_path / "1")
    assert callable(damage)
    damage(mirror.path)
    if moved:
        repository.commit("second", a__json="2")
    assert write_files(mirror, tip(repository), tmp_path / "2") == ("2" if moved else "1")


def test_a_server_that_gives_out_no_bare_commits_is_asked_by_name(
    tmp_path: Path, repository: Repository
) -> None:
    pinned = tip(repository)
    repository.commit("second", a__json="2")
    with git_server(tmp_path, newest_protocol=False) as old:
        mirror = a_mirror(tmp_path, old)
        assert write_files(mirror, pinned, tmp_path / "1", f"commit:{pinned}") == "1"
        assert write_files(mirror, tip(repository), tmp_path / "2") == "2"


def test_a_revision_that_moved_on_meanwhile_is_gone(tmp_path: Path, repository: Repository) -> None:
    before = tip(repository)
    repository.git("commit", "-q", "--amend", "-m", "instead")
    with git_server(tmp_path, newest_protocol=False) as old, pytest.raises(Failed) as setback:
        write_files(a_mirror(tmp_path, old), before, tmp_path / "1")
    assert setback.value.reason == "RevisionGone"


def test_what_stays_damaged_fails_once_it_was_fetched_anew(
    mirror: Mirror, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "1"
    tries: list[list[str]] = []

    def half_written(*_: object) -> NoReturn:
        tries.append([path.name for path in into.iterdir()])
        (into / "folder").mkdir()
        (into / "a.json").write_text("half")
        raise KeyError("an object")

    monkeypatch.setattr("controller.sources.git_commits.write_commit", half_written)
    with pytest.raises(Failed, match="cannot be read") as setback:
        write_files(mirror, tip(repository), into)
    assert setback.value.reason == "GitOperationFailed"
    assert tries == [[], []]


def test_a_mirror_of_what_is_too_large_is_removed_and_not_fetched_again_until_a_commit(
    mirror: Mirror, repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    (tmp_path / "1").mkdir()
    revision = Revision("main", f"sha1:{tip(repository)}")
    asked = []
    for _ in range(2):
        with pytest.raises(Stalled, match="more than 0 bytes"):
            read(mirror, Checkout(revision, tmp_path / "1", TreeLimits(total_bytes=0)))
        asked.append(len(server.fetches))
    assert not mirror.path.exists()
    assert asked[0] == asked[1]
    repository.commit("second", a__json="2")
    assert write_files(mirror, tip(repository), tmp_path / "2") == "2"


def test_what_exceeded_limits_is_fetched_again_where_there_is_more_room(
    mirror: Mirror, server: GitServer, repository: Repository, tmp_path: Path
) -> None:
    revision = Revision("main", f"sha1:{repository.commit('three', b__json='2', c__json='3')}")

    def is_fetched(entries: int) -> bool:
        into = tmp_path / f"{entries}"
        into.mkdir()
        before = len(server.fetches)
        with pytest.raises(Stalled, match="files and folders"):
            read(mirror, Checkout(revision, into, TreeLimits(entries=entries)))
        return len(server.fetches) > before

    assert [is_fetched(entries) for entries in (1, 2, 0)] == [True, True, False]
    assert write_files(mirror, revision.digest.removeprefix("sha1:"), tmp_path / "all") == "1"


def test_a_pack_over_the_limit_is_refused_and_leaves_nothing(
    mirror: Mirror, repository: Repository, tmp_path: Path
) -> None:
    (repository.path / "large").write_bytes(os.urandom(3_000_000))
    limited = replace(mirror, program=replace(mirror.program, limits=ProcessLimits(file_bytes=1_000_000)))
    revision = Revision("main", f"sha1:{repository.commit('large')}")
    (tmp_path / "1").mkdir()
    with pytest.raises(Stalled, match="1000000 bytes for one file") as setback:
        read(limited, Checkout(revision, tmp_path / "1"))
    assert setback.value.reason == "LimitExceeded"
    assert not mirror.path.exists()


def test_two_that_fetch_at_once_take_turns(mirror: Mirror, repository: Repository, tmp_path: Path) -> None:
    oid = tip(repository)
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(write_files, mirror, oid, tmp_path / str(n)) for n in range(4)]
        assert [one.result() for one in running] == ["1"] * 4


def test_a_look_that_is_cancelled_while_it_takes_the_lock_leaves_it_free(
    tmp_path: Path, server: GitServer, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = a_mirror(tmp_path, server, timeout=10)
    revision = Revision("main", f"sha1:{repository.git('rev-parse', 'HEAD')}")
    begun, free = threading.Event(), threading.Event()

    def slowly(path: Path) -> int | None:
        begun.set()
        assert free.wait(10)
        return taken(path)

    def look(into: Path) -> Awaitable[Fetched]:
        into.mkdir()
        return mirror.read(Reference.parse("main"), Checkout(revision, into), CommitReader(ThreadTasks()))

    async def looks() -> None:
        cancelled = asyncio.ensure_future(look(tmp_path / "cancelled"))
        assert await asyncio.to_thread(begun.wait, 10)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert cancelled.cancelled()
        free.set()
        await look(tmp_path / "next")

    taken = mirror_module.take_lock
    monkeypatch.setattr(mirror_module, "take_lock", slowly)
    asyncio.run(looks())
    assert (tmp_path / "next" / "a.json").read_text() == "1"


def hold(mirror: Mirror, held: multiprocessing.synchronize.Event) -> None:
    with mirror.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held.set()
        multiprocessing.Event().wait(60)


def test_a_mirror_that_stays_busy_fails_and_its_holders_death_frees_it(
    tmp_path: Path, server: GitServer, repository: Repository
) -> None:
    context = multiprocessing.get_context("fork")
    held = context.Event()
    (tmp_path / "mirrors").mkdir()
    holder = context.Process(target=hold, args=(a_mirror(tmp_path, server), held))
    holder.start()
    assert held.wait(30)
    with pytest.raises(Failed, match="another fetch still uses its mirror"):
        write_files(a_mirror(tmp_path, server, timeout=0.1), tip(repository), tmp_path / "1")
    holder.kill()
    holder.join()
    assert write_files(a_mirror(tmp_path, server), tip(repository), tmp_path / "2") == "1"


def test_a_folder_that_cannot_be_made_fails(
    tmp_path: Path, server: GitServer, repository: Repository
) -> None:
    (tmp_path / "mirrors").write_text("in the way")
    with pytest.raises(Failed) as setback:
        write_files(a_mirror(tmp_path, server), tip(repository), tmp_path / "1")
    assert setback.value.reason == "StorageOperationFailed"


NOW = 1_800_000_000.0


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A mirror that was used for the last time a moment too long ago."""
    path = tmp_path / "mirrors" / "old.git"
    path.mkdir(parents=True)
    (path / "objects").write_text("much")
    os.utime(path, (NOW - UNUSED - 1.0,) * 2)
    return path


def test_a_mirror_that_was_unused_for_a_week_is_removed_whole(old: Path) -> None:
    sweep_mirrors(old.parent.parent, (), NOW)
    assert list(old.parent.iterdir()) == []


def test_one_that_was_used_within_the_week_stays(old: Path) -> None:
    sweep_mirrors(old.parent.parent, (), NOW - 2.0)
    assert old.exists()


def test_one_in_use_stays_and_its_week_begins_anew(old: Path) -> None:
    sweep_mirrors(old.parent.parent, {old}, NOW)
    sweep_mirrors(old.parent.parent, (), NOW + UNUSED)
    assert old.exists()
    sweep_mirrors(old.parent.parent, (), NOW + UNUSED + 1.0)
    assert not old.exists()


def test_a_mirror_in_use_stays(old: Path) -> None:
    with old.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep_mirrors(old.parent.parent, (), NOW)
    assert (old / "objects").exists()


def test_before_there_are_mirrors_there_is_nothing_to_sweep(tmp_path: Path) -> None:
    sweep_mirrors(tmp_path / "none", (), NOW)
    assert not (tmp_path / "none").exists()


def test_a_full_volume_costs_the_mirrors_that_no_source_uses(tmp_path: Path) -> None:
    used, unused = tmp_path / "shop/used.git", tmp_path / "shop/unused.git"
    for mirror in (used, unused):
        mirror.mkdir(parents=True)
    assert remove_unused(tmp_path, {used})
    assert (used.exists(), unused.exists()) == (True, False)
    assert not remove_unused(tmp_path, {used})
