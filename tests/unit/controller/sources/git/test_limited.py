"""Repositories that are small to fetch and large to read."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from typing import TYPE_CHECKING

import pytest

from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import Helpers
from controller.runtime.places import Places
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.deadline import Deadline
from controller.sources.git.limited import LimitedReader
from controller.sources.limits import TreeLimits
from controller.sources.provider import Revision
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.sources.provider import Fetched

BASE = 120_000_000
SMALL = TaskLimits(memory_bytes=60_000_000, cpu_seconds=30.0)
_BLOB, _REF_DELTA = 3, 7


@pytest.fixture
async def helpers() -> AsyncIterator[Helpers]:
    helpers = Helpers(1)
    yield helpers
    await helpers.close()


def head(kind: int, size: int) -> bytes:
    """The head of an object in a pack (gitformat-pack)."""
    first, size = (kind << 4) | (size & 15), size >> 4
    found = bytearray()
    while size:
        found.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    return bytes([*found, first])


def number(size: int) -> bytes:
    found = bytearray()
    while size > 0x7F:
        found.append((size & 0x7F) | 0x80)
        size >>= 7
    return bytes([*found, size])


def bomb(repository: Repository) -> str:
    """A commit with one file of 20 bytes, stored as what differs from a base of `BASE` zeros."""
    zeros = bytes(BASE)
    base = hashlib.sha1(b"blob %d\0" % BASE, usedforsecurity=False)
    base.update(zeros)
    # Copy 20 bytes from the start of the base.
    delta = number(BASE) + number(20) + bytes([0x90, 20])
    pack = b"PACK" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
    pack += head(_BLOB, BASE) + zlib.compress(zeros, 1)
    pack += head(_REF_DELTA, len(delta)) + base.digest() + zlib.compress(delta)
    pack += hashlib.sha1(pack, usedforsecurity=False).digest()
    file = repository.path.parent / "bomb.pack"
    file.write_bytes(pack)
    folder = repository.path / ".git" / "objects" / "pack"
    folder.mkdir(exist_ok=True)
    repository.git("index-pack", "-o", str(folder / "pack-1.idx"), str(file))
    (folder / "pack-1.pack").write_bytes(pack)
    blob = hashlib.sha1(b"blob 20\0" + bytes(20), usedforsecurity=False).hexdigest()
    repository.git("update-index", "--add", "--cacheinfo", f"100644,{blob},flags.json")
    repository.git("commit", "-q", "-m", "small")
    return repository.git("rev-parse", "HEAD")


async def read(helpers: Helpers, repository: Repository, oid: str, into: Path, seconds: float) -> Fetched:
    deadline = Deadline(seconds, "https://h/r")
    reader = LimitedReader(helpers, Places(2), "apps", deadline, SMALL)
    await asyncio.to_thread(into.mkdir)
    return await reader(repository.path, Revision("main", f"sha1:{oid}"), into, TreeLimits(), ())


async def test_a_delta_bomb_costs_its_helper_and_the_limit_is_named(helpers: Helpers, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    sound = repository.commit("sound", flags__json="1")
    exploding = await asyncio.to_thread(bomb, repository)
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
