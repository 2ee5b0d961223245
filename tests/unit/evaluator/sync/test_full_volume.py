"""The last good set is kept whatever else fills its volume."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.saved import Saved
from evaluator.host import durable
from evaluator.store.history import History
from evaluator.store.store import Store
from evaluator.sync.lastgood import LastGood, LastGoodWriter, StateFolder
from evaluator.sync.schedule import RetryPauses
from tests.clock import Clock
from tests.stores import swap
from tests.volumes import fill, small_volume
from tests.waiting import until
from tests.worlds.sync import files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

SIZE = 70_000


def flag_set(number: int, size: int = SIZE) -> FlagSet:
    return FlagSet({"a": Flag("a", State.ENABLED, {"on": f"{number:05}" + "x" * size}, "on")})


def saved_flags(number: int, size: int = SIZE) -> Saved:
    return Saved(flag_set(number, size), datetime(2026, 1, 2, tzinfo=UTC))


def number_in(last_good: LastGood) -> int | None:
    kept = last_good.load()
    return None if kept is None else int(str(kept.flag_set.flags["a"].variants["on"])[:5])


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_volume(tmp_path / "volume") as folder:
        yield folder


class Keeping:
    """An evaluator's state folder, with its history, while both are written."""

    def __init__(self, folder: Path, last_good: LastGood | None = None) -> None:
        self.history = History(folder / "versions", recount_seconds=0.05)
        self.last_good = last_good or LastGood(folder, "one")
        self.store = Store(sources=["one"])
        self.store.subscribe(self.history.record)
        state = StateFolder(folder, self.history, Clock(1_000.0))
        self.keeper = LastGoodWriter(self.last_good, "one", RetryPauses(lambda: 0.0), folder=state)

    def serve(self, number: int, size: int = SIZE) -> str:
        """The digest of what is served from now on."""
        self.keeper.keep(saved_flags(number, size), changed=True)
        return swap(self.store, flag_set(number, size), now=1_000.0 + number).digest


@contextlib.asynccontextmanager
async def run_writers(folder: Path, last_good: LastGood | None = None) -> AsyncIterator[Keeping]:
    kept = Keeping(folder, last_good)
    tasks = [asyncio.create_task(part.run()) for part in (kept.history, kept.keeper)]
    try:
        yield kept
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def versions_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder / "versions", "*.version"))


def test_a_volume_that_others_filled_takes_the_next_sets(volume: Path) -> None:
    last_good = LastGood(volume / "state", "one")
    last_good.save(saved_flags(0))
    fill(volume / "filler")
    for number in range(1, 8):
        last_good.save(saved_flags(number))
        assert number_in(LastGood(volume / "state", "one")) == number


def test_a_volume_without_room_for_a_larger_set_keeps_the_set_before(volume: Path) -> None:
    last_good = LastGood(volume / "state", "one")
    last_good.save(saved_flags(0))
    fill(volume / "filler")
    with pytest.raises(OSError, match="No space left"):
        last_good.save(saved_flags(1, size=4 * SIZE))
    assert number_in(last_good) == 0
    last_good.save(saved_flags(2))
    assert number_in(last_good) == 2


async def test_versions_take_a_quarter_of_the_free_room_and_every_set_is_saved(volume: Path) -> None:
    async with run_writers(volume) as kept:
        for number in range(12):
            digest = kept.serve(number)
            await until(lambda: not kept.keeper.unsaved_seconds)
            assert number_in(kept.last_good) == number
        await until(lambda: kept.history.find(digest))
        assert versions_size(volume) * 3 <= durable.free_bytes(volume)


async def test_versions_go_when_others_take_the_volume(volume: Path) -> None:
    async with run_writers(volume) as kept:
        digest = kept.serve(1)
        await until(lambda: kept.history.find(digest))
        fill(volume / "filler", left=SIZE)
        await until(lambda: not files(volume / "versions", "*.version"))
        assert kept.history.find(digest) is None


async def test_a_save_that_fails_is_tried_again_as_soon_as_there_is_room(volume: Path) -> None:
    fill(volume / "filler")
    async with run_writers(volume / "state") as kept:
        kept.serve(1)
        await until(lambda: kept.keeper.failures > 4)
        assert "No space left" in kept.keeper.fault
        (volume / "filler").unlink()
        await until(lambda: not kept.keeper.fault, seconds=3)
        assert number_in(kept.last_good) == 1


class SmallVolume(LastGood):
    """Has no room for a set while there are versions, as a volume of their size has: needs no mount."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "one")
        self.folder = folder
        self.small = False

    def save(self, saved: Saved, make_room: Callable[[int], bool] | None = None) -> None:
        while self.small and versions_size(self.folder):
            if make_room is None or not make_room(SIZE):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.small = False
        super().save(saved, make_room)


async def test_versions_are_removed_first_where_a_save_finds_no_room(tmp_path: Path) -> None:
    last_good = SmallVolume(tmp_path)
    async with run_writers(tmp_path, last_good) as kept:
        first = kept.serve(1)
        await until(lambda: kept.history.find(first))
        last_good.small = True
        kept.serve(2)
        await until(lambda: number_in(last_good) == 2)
        assert (kept.keeper.failures, kept.keeper.fault) == (0, "")
        assert kept.history.find(first) is None


async def test_no_version_is_written_before_the_last_good_set_is(tmp_path: Path) -> None:
    last_good = LastGood(tmp_path, "one")
    last_good.path.mkdir()
    async with run_writers(tmp_path, last_good) as kept:
        digest = kept.serve(1)
        await until(lambda: kept.keeper.failures)
        assert kept.history.find(digest) is None
        last_good.path.rmdir()
        await until(lambda: kept.history.find(digest))
        assert number_in(last_good) == 1


def test_damaged_files_and_those_of_earlier_sources_go_for_a_set(tmp_path: Path) -> None:
    followed, gone = LastGood(tmp_path, "followed"), LastGood(tmp_path, "gone")
    state = StateFolder(tmp_path, None, Clock(1e12))
    state.followed.append(followed)
    for path in (followed.path, gone.path, followed.path.with_name(f"{followed.path.name}.damaged")):
        path.write_bytes(b"x")
    assert state.make_room(1)
    assert files(tmp_path) == [followed.path]
    assert not state.make_room(1)
