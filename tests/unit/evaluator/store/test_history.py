from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evaluator.store.history import (
    KEPT_SECONDS,
    LATE_SECONDS,
    MOST_FLAGS,
    MOST_STATES,
    History,
    InvalidInstantError,
    RolloutHistory,
)
from evaluator.store.store import Store
from tests.rollout_sets import NEW, OLD, PLAIN, flags, rolled_out
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


KEY = NEW.key
START = 1_700_000_000.0


def store_with_history() -> tuple[Store, RolloutHistory]:
    store = Store()
    return store, RolloutHistory(store)


def step_at(store: Store, history: RolloutHistory, moment: float | None, now: float) -> str | None:
    assert store.snapshot is not None
    flag = history.flag_at(store.snapshot, KEY, moment, now=now)
    return None if flag is None else str(flag.flag.metadata["flagstaff.dev/rollout-step"])


def test_a_moment_finds_the_step_that_was_served_then() -> None:
    store, history = store_with_history()
    for number, step in enumerate(("1/4", "2/4", "3/4")):
        swap(store, rolled_out(10, step=step), now=START + 60 * number)
    found = [step_at(store, history, START + seconds, START + 200) for seconds in (0, 59, 60, 119, 120, 500)]
    assert found == ["1/4", "1/4", "2/4", "2/4", "3/4", "3/4"]
    assert step_at(store, history, None, START + 200) == "3/4"
    assert step_at(store, history, START - 1, START + 200) is None


@pytest.mark.parametrize(("after", "found"), [(0.0, "2/4"), (LATE_SECONDS - 1, "2/4"), (LATE_SECONDS, None)])
def test_what_comes_soon_after_the_end_of_a_rollout_counts_for_its_last_step(
    after: float, found: str | None
) -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    swap(store, flags(NEW, PLAIN), now=START + 60)
    now = START + 60 + after
    assert store.snapshot is not None
    assert history.keys(store.snapshot) == [KEY]
    assert [step_at(store, history, moment, now) for moment in (None, now)] == [found, found]
    assert step_at(store, history, START + 30, now) == "2/4"


def test_a_change_of_another_flag_is_no_new_step() -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    for number in range(1, 2 * MOST_STATES):
        other = replace(PLAIN, variants={"on": number}, key="other")
        served = rolled_out(10)
        swap(store, replace(served, flags={**served.flags, "other": other}), now=START + number)
    assert step_at(store, history, START, START + 100) == "2/4"


def test_what_ended_long_ago_is_forgotten() -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    swap(store, flags(NEW), now=START + 60)
    swap(store, flags(OLD), now=START + 61 + KEPT_SECONDS)
    assert store.snapshot is not None
    assert (history.keys(store.snapshot), history.revisions(KEY)) == ([], set())


def test_the_number_of_definitions_is_bounded() -> None:
    store, history = store_with_history()
    for number in range(3 * MOST_STATES):
        swap(store, rolled_out(number + 1, step=f"{number}/99"), now=START + number)
    assert step_at(store, history, START, START + 100) is None
    assert step_at(store, history, START + 2 * MOST_STATES, START + 100) == f"{2 * MOST_STATES}/99"
    marked = rolled_out(10).flags[KEY]
    many = {f"new-{number}": replace(marked, key=f"new-{number}") for number in range(MOST_FLAGS + 5)}
    swap(store, flags(*many.values()), now=START + 200)
    swap(store, flags(*(replace(NEW, key=key) for key in many)), now=START + 300)
    assert store.snapshot is not None
    assert len(history.keys(store.snapshot)) <= MOST_FLAGS


def test_a_flag_that_is_gone_is_not_among_the_keys() -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    snapshot = swap(store, flags(PLAIN), now=START + 60)
    assert history.keys(snapshot) == []
