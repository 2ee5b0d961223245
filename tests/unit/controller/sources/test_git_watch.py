from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest

from controller.sources.backend import poll_ticks
from controller.sources.git_backend import reference_changes
from controller.sources.git_repository import find_folders
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NEVER = 3600.0
"""An interval that no test waits for."""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", a="1")
    return repository


@contextlib.asynccontextmanager
async def watch_references(path: Path, interval: float = NEVER) -> AsyncIterator[AsyncIterator[None]]:
    async with asyncio.timeout(20), contextlib.aclosing(reference_changes(path, interval)) as changes:  # type: ignore[type-var] # a generator in truth
        await anext(changes)
        yield changes


CHANGES: dict[str, Callable[[Repository], object]] = {
    "a commit": lambda r: r.commit("second"),
    "a branch with a slash": lambda r: r.git("branch", "feature/deep/x"),
    "a tag": lambda r: r.git("tag", "v1"),
    "a switch": lambda r: r.git("symbolic-ref", "HEAD", "refs/heads/dev"),
    "packing": lambda r: r.git("pack-refs", "--all"),
    "a deletion": lambda r: r.git("update-ref", "-d", "refs/heads/main"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_of_references_is_noticed(
    repository: Repository, change: Callable[[Repository], object]
) -> None:
    async with watch_references(repository.path) as changes:
        await asyncio.to_thread(change, repository)
        await anext(changes)


async def test_each_of_many_commits_is_noticed(repository: Repository) -> None:
    async with watch_references(repository.path) as changes:
        for number in range(5):
            await asyncio.to_thread(repository.commit, f"number {number}")
            await anext(changes)


async def test_a_bare_repository_is_watched(repository: Repository) -> None:
    repository.git("clone", "-q", "--bare", ".", "../bare.git")
    async with watch_references(repository.path.parent / "bare.git") as changes:
        repository.git("push", "-q", "../bare.git", "HEAD:refs/heads/new")
        await anext(changes)


async def test_a_linked_work_tree_is_watched_where_its_references_are(repository: Repository) -> None:
    repository.git("worktree", "add", "-q", "-b", "side", "../linked")
    async with watch_references(repository.path.parent / "linked") as changes:
        repository.git("-C", "../linked", "commit", "-q", "--allow-empty", "-m", "on the side")
        await anext(changes)


async def test_files_of_the_work_tree_and_the_index_are_no_change(repository: Repository) -> None:
    async with watch_references(repository.path) as changes:
        repository.write("a", "2")
        repository.git("add", "-A")
        waiting = asyncio.ensure_future(anext(changes))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        await asyncio.to_thread(repository.commit)
        await waiting


async def test_a_silent_watch_looks_again_every_interval(repository: Repository) -> None:
    async with watch_references(repository.path, interval=0.01) as changes:
        await anext(changes)
        await anext(changes)


async def test_a_repository_that_goes_and_comes_back_is_watched_again(repository: Repository) -> None:
    away = repository.path.parent / "away"
    async with watch_references(repository.path, interval=0.05) as changes:
        repository.path.rename(away)
        assert not find_folders(repository.path)
        await anext(changes)
        away.rename(repository.path)
        await anext(changes)
        await asyncio.to_thread(repository.commit)
        await anext(changes)


async def test_a_repository_in_anothers_place_is_watched_anew(repository: Repository, tmp_path: Path) -> None:
    async with watch_references(repository.path) as changes:
        await asyncio.to_thread(shutil.rmtree, repository.path)
        await anext(changes)
        fresh = Repository(tmp_path / "repository")
        fresh.commit("first")
        await anext(changes)
        await asyncio.to_thread(fresh.commit, "second")
        await anext(changes)


async def test_a_repository_that_is_not_there_yet_is_awaited(tmp_path: Path) -> None:
    async with watch_references(tmp_path / "repository") as changes:
        Repository(tmp_path / "repository").commit("first")
        await anext(changes)


async def test_without_a_watch_the_interval_holds_and_the_log_says_so(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_more(*_: object, **__: object) -> None:
        raise OSError("no more watches")

    monkeypatch.setattr("inotify_simple.INotify", no_more)
    async with watch_references(repository.path, interval=0.01) as changes:
        await anext(changes)
        await anext(changes)
    assert "read at every interval: no more watches" in caplog.text


async def test_a_remote_is_looked_at_at_once_and_every_interval() -> None:
    async with asyncio.timeout(20):
        changes = poll_ticks(0.001)
        for _ in range(3):
            await anext(changes)


async def test_intervals_are_spread_by_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("controller.sources.backend.asyncio.sleep", sleep)
    changes = poll_ticks(10.0)
    for _ in range(200):
        await anext(changes)
    assert all(9.0 <= seconds <= 11.0 for seconds in slept)
    assert len(set(slept)) > 100


@pytest.mark.parametrize("content", ["", "gitdir: /nowhere", "\udcff"])
def test_a_broken_pointer_to_a_repository_is_no_repository(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert not find_folders(tmp_path)


def test_every_folder_of_references_is_watched(repository: Repository) -> None:
    (repository.path / ".git" / "reftable").mkdir()
    repository.git("branch", "feature/deep/x")
    found = [str(each.relative_to(repository.path)) for each in find_folders(repository.path)]
    assert found[:2] == [".git", ".git/refs"]
    assert {".git/refs/heads/feature/deep", ".git/reftable"} <= set(found)


async def test_a_commit_to_a_branch_in_a_new_folder_is_noticed(repository: Repository) -> None:
    async with watch_references(repository.path) as changes:
        await asyncio.to_thread(repository.git, "checkout", "-q", "-b", "feature/deep/x")
        await anext(changes)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(repository.commit, "deep")
        await anext(changes)
