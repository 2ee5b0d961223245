"""Mirrors as a killed fetch or a damaged disk may leave them: the next reconcile heals them, by a helper."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.runtime.helper import TaskLimits
from tests.git_http import git_server
from tests.repositories import Repository
from tests.worlds.sources import GitSources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOMENTS = 6
"""At which a fetch is killed, from its start to its end."""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.write("folder/more.json", "2")
    repository.commit("first", flags__json="1")
    return repository


@pytest.fixture
async def world(tmp_path: Path, repository: Repository) -> AsyncIterator[GitSources]:
    with git_server(repository.path.parent) as server:
        server.observes_processes = False
        world = GitSources(tmp_path, f"{server.url}/repository/.git")
        yield world
        await world.close()


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.chmod(0o600)
    file.write_bytes(b"")


def lock(file: Path) -> None:
    file.with_name(f"{file.name}.lock").touch()


@pytest.mark.parametrize("harm", [remove, empty, lock])
async def test_a_mirror_with_any_file_harmed_heals_at_the_next_reconcile(
    world: GitSources, repository: Repository, tmp_path: Path, harm: object
) -> None:
    assert callable(harm)
    await world.look()
    (mirror,) = (world.mirrors / "apps").glob("*.git")
    whole = shutil.copytree(mirror, tmp_path / "whole")
    paths = (path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    files = [path for path in paths if path.parts[0] not in {"hooks", "info", "description"}]
    for number, file in enumerate(files):
        shutil.rmtree(mirror)
        shutil.copytree(whole, mirror)
        harm(mirror / file)
        assert (file, await world.look(f"same-{number}")) == (file, b"1")
    repository.commit("second", flags__json="2")
    for number, file in enumerate(files):
        shutil.rmtree(mirror)
        shutil.copytree(whole, mirror)
        harm(mirror / file)
        assert (file, await world.look(f"new-{number}")) == (file, b"2")


async def test_a_mirror_with_a_truncated_object_is_fetched_anew(
    world: GitSources, repository: Repository
) -> None:
    await world.look()
    blob = repository.git("rev-parse", "HEAD:flags.json")
    (file,) = (world.mirrors / "apps").glob(f"*.git/objects/{blob[:2]}/{blob[2:]}")
    file.chmod(0o600)
    # libgit2 reads it for ever.
    file.write_bytes(file.read_bytes()[:-6])
    world.sources.task = TaskLimits(cpu_seconds=1.0)
    assert await world.look("other") == b"1"


FETCH = """
import asyncio, pathlib, sys
from controller.sources.git_backend import open_source
url, mirrors, into = sys.argv[1:]
source = open_source(url, mirror_root=pathlib.Path(mirrors))
async def resolve_and_fetch():
    await source.fetch(await source.resolve(), pathlib.Path(into))
print("ready", flush=True)
asyncio.run(resolve_and_fetch())
"""


def descendants(process: int) -> list[int]:
    found = [process]
    for parent in found:
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found


async def test_a_fetch_that_is_killed_at_any_moment_heals_at_the_next_reconcile(
    world: GitSources, repository: Repository, tmp_path: Path
) -> None:
    lasts = 0.0
    for number in range(MOMENTS + 1):
        repository.commit("more", flags__json=str(number))
        into = tmp_path / f"into-{number}"
        await asyncio.to_thread(into.mkdir)
        arguments = (world.url, str(world.mirrors / "apps"), str(into))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", FETCH, *arguments, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        began = time.monotonic()
        if number:
            await asyncio.sleep(lasts * number / MOMENTS)
            for each in descendants(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        await process.wait()
        lasts = lasts or time.monotonic() - began
        assert await world.look() == str(number).encode()
