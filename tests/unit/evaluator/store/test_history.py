from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evaluator.store.history import History, InvalidInstantError
from evaluator.store.store import Store
from tests.stores import swap
from tests.unit.evaluator.store.test_store import version
from tests.waiting import run_beside, until
from tests.worlds.sync import files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOW = 1_767_323_045.0


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def number(history: History, asked: str) -> object:
    """What flag `a` said in the version that is found."""
    found = history.find(asked)
    return None if found is None else found.read().flags["a"].variants["v"]


@contextlib.asynccontextmanager
async def run_history(
    folder: Path, most: int = 32, most_bytes: int = 1_000_000
) -> AsyncIterator[tuple[Store, History]]:
    history, store = History(folder, most=most, most_bytes=most_bytes), Store()
    history.load()
    store.subscribe(history.record)
    async with run_beside(history.run()):
        yield store, history


async def test_a_version_is_found_by_its_digest_and_by_when_it_was_served(tmp_path: Path) -> None:
    async with run_history(tmp_path / "versions") as (store, history):
        first = swap(store, version(1), now=NOW)
        second = swap(store, version(2), now=NOW + 60)
        await until(lambda: history.find(second.digest))
        assert (number(history, first.digest), number(history, second.digest[:20])) == (1, 2)
        assert [number(history, at(NOW + after)) for after in (-1, 0, 59, 60, 999)] == [None, 1, 1, 2, 2]
        assert number(history, "sha256:00000000") is None


async def test_versions_outlive_the_process_and_the_same_again_is_none(tmp_path: Path) -> None:
    async with run_history(tmp_path) as (store, history):
        swap(store, version(1), now=NOW)
        await until(lambda: history.find(at(NOW)))
    async with run_history(tmp_path) as (store, history):
        swap(store, version(1), now=NOW + 60)
        swap(store, version(2), now=NOW + 120)
        await until(lambda: number(history, at(NOW + 120)) == 2)
        assert number(history, at(NOW)) == 1
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("bounds", [{"most": 2}, {"most_bytes": 1_000}])
async def test_the_oldest_versions_go_first(tmp_path: Path, bounds: dict[str, int]) -> None:
    async with run_history(tmp_path, **bounds) as (store, history):
        for each in range(8):
            swap(store, version(each), now=NOW + each)
        await until(lambda: number(history, at(NOW + 7)) == 7)
        assert number(history, at(NOW)) is None
    left = files(tmp_path)
    assert len(left) <= bounds.get("most", 8)
    assert sum(path.stat().st_size for path in left) <= bounds.get("most_bytes", 1_000_000)


async def test_a_version_that_the_disk_refuses_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "versions"
    folder.write_text("in the way")
    async with run_history(folder) as (store, _):
        swap(store, version(1), now=NOW)
        await until(lambda: "is not kept" in caplog.text)


@pytest.mark.parametrize("asked", ["", "yesterday", "2026-01-02T03:04:05", "sha256:12"])
def test_what_is_neither_a_digest_nor_a_time_is_refused(tmp_path: Path, asked: str) -> None:
    with pytest.raises(InvalidInstantError, match=r"a digest .* or a time with its zone"):
        History(tmp_path).find(asked)
