"""Repositories that are small to fetch and large to read."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import Helpers
from controller.runtime.limits import Places
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import Fetched, Revision
from controller.sources.deadline import Deadline, LimitedTasks
from controller.sources.git_commits import Checkout, CommitReader
from tests.bombs import delta_bomb
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SMALL = TaskLimits(memory_bytes=60_000_000, cpu_seconds=30.0)


@pytest.fixture
async def helpers() -> AsyncIterator[Helpers]:
    helpers = Helpers()
    yield helpers
    await helpers.close()


async def read(helpers: Helpers, repository: Repository, oid: str, into: Path, seconds: float) -> Fetched:
    deadline = Deadline(seconds, "https://h/r")
    reader = CommitReader(LimitedTasks(helpers, Places(2), "apps", deadline, SMALL, "GitOperationFailed"))
    await asyncio.to_thread(into.mkdir)
    return await reader.read(repository.path, Checkout(Revision("main", f"sha1:{oid}"), into))


async def test_a_delta_bomb_costs_its_helper_and_the_limit_is_named(helpers: Helpers, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    sound = repository.commit("sound", flags__json="1")
    exploding = await asyncio.to_thread(delta_bomb, repository, 120)
    with pytest.raises(Stalled, match="needs more memory than it may use") as setback:
        await read(helpers, repository, exploding, tmp_path / "1", 60.0)
    assert setback.value.reason == "LimitExceeded"
    fetched = await read(helpers, repository, sound, tmp_path / "2", 60.0)
    assert fetched.summary == "commit 'sound' of Ada <ada@example.com>"


async def test_reading_is_under_the_deadline_of_the_look(helpers: Helpers, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    oid = repository.commit("first", flags__json="1")
    with pytest.raises(Failed, match=r"within 0\.001 seconds") as setback:
        await read(helpers, repository, oid, tmp_path / "1", 0.001)
    assert setback.value.reason == "Timeout"


def test_a_helper_loads_no_models_of_kinds() -> None:
    # They are a quarter of its memory, and half of its start.
    script = "import sys; import controller.sources.git_commits; print('pydantic' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"
