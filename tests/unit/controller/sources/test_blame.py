from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.sources.backend import LineAuthor
from controller.sources.git_backend import open_source
from tests.git_http import git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json="one\ntwo\n")
    return repository


@pytest.mark.parametrize(("line", "subject"), [(1, "first"), (2, "second")])
async def test_the_commit_and_author_of_the_very_line_are_named(
    repository: Repository, tmp_path: Path, line: int, subject: str
) -> None:
    second = repository.commit("second", flags__json="one\n2\n")
    first = repository.git("rev-parse", "HEAD~1")
    source = open_source(str(repository.path), mirror_root=tmp_path / "mirrors")
    found = await source.last_change(await source.resolve(), "flags.json", line)
    assert found == LineAuthor(first if line == 1 else second, "Ada <ada@example.com>", subject)


@pytest.mark.parametrize(("file", "line"), [("flags.json", 9), ("none.json", 1), ("--output=x", 1)])
async def test_a_missing_file_or_line_has_no_author(
    repository: Repository, tmp_path: Path, file: str, line: int
) -> None:
    source = open_source(str(repository.path), mirror_root=tmp_path / "mirrors")
    assert await source.last_change(await source.resolve(), file, line) is None


async def test_a_mirror_has_no_history_to_ask(repository: Repository, tmp_path: Path) -> None:
    with git_server(tmp_path) as server:
        source = open_source(f"{server.url}/{repository.path.name}/.git", mirror_root=tmp_path / "mirrors")
        assert await source.last_change(await source.resolve(), "flags.json", 1) is None
