from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.sync.lastgood import KEPT_SECONDS, LastGood, LastGoodWriter, sweep
from evaluator.sync.schedule import RetryPauses
from tests.clock import Clock
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def saved_flag(**context: object) -> Saved:
    flag = Flag("a", State.ENABLED, {"on": True}, "on")
    return Saved(FlagSet({"a": flag}), NOW, context)


@pytest.mark.parametrize("context", [{}, {"region": "eu", "deep": [1, {"a": None}]}])
def test_a_set_comes_back_with_its_context(tmp_path: Path, context: dict[str, object]) -> None:
    LastGood(tmp_path, "one").save(saved_flag(**context))
    assert LastGood(tmp_path, "one").load() == saved_flag(**context)
    assert LastGood(tmp_path, "another").load() is None


def test_a_context_that_was_changed_is_noticed() -> None:
    content = encode(saved_flag(region="eu")).replace(b'"eu"', b'"us"')
    with pytest.raises(ValueError, match="checksum"):
        decode(content)


def test_what_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="too many"):
        encode(saved_flag(region="x" * (MAX_BYTES // 256)))


@contextlib.asynccontextmanager
async def run_writer(last_good: LastGood, clock: Clock) -> AsyncIterator[LastGoodWriter]:
    keeper = LastGoodWriter(last_good, "one", RetryPauses(lambda: 0.0), clock)
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        task.cancel()


async def test_a_set_is_unsaved_from_when_it_is_served_until_it_is_on_disk(tmp_path: Path) -> None:
    clock = Clock(1_000.0)
    async with run_writer(LastGood(tmp_path, "one"), clock) as keeper:
        assert (keeper.unsaved_seconds, keeper.last_save_seconds) == (0.0, None)
        keeper.keep(saved_flag(), changed=True)
        clock.now += 3
        assert keeper.unsaved_seconds == 3
        await until(lambda: keeper.last_save_seconds == 3)
        clock.now += 60
        assert keeper.unsaved_seconds == 0
        keeper.keep(saved_flag(), changed=False)
        assert keeper.unsaved_seconds == 0


class Watched(LastGood):
    """Notes which sets are tried."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "one")
        self.tried: list[Saved] = []

    def save(self, saved: Saved, make_room: Callable[[int], bool] | None = None) -> None:
        self.tried.append(saved)
        super().save(saved, make_room)


async def test_what_a_disk_refuses_stays_unsaved_however_often_it_is_replaced(tmp_path: Path) -> None:
    clock, folder = Clock(1_000.0), tmp_path / "state"
    folder.write_text("no folder")
    last_good, sets = Watched(folder), [saved_flag(number=number) for number in range(3)]
    async with run_writer(last_good, clock) as keeper:
        for number, each in enumerate(sets):
            keeper.keep(each, changed=number != 1)
            clock.now += 10
            await asyncio.sleep(0)
        assert keeper.unsaved_seconds == 30
        # On a slow machine an older set may still be on its way to the disk.
        await until(lambda: last_good.tried[-1:] == sets[-1:])
        folder.unlink()
        await until(lambda: not keeper.unsaved_seconds)
        assert keeper.last_save_seconds == 30


async def test_a_set_that_is_too_large_to_be_kept_stays_unsaved(tmp_path: Path) -> None:
    clock = Clock(1_000.0)
    async with run_writer(LastGood(tmp_path, "one"), clock) as keeper:
        keeper.keep(saved_flag(region="x" * (MAX_BYTES // 256)), changed=True)
        await until(lambda: "too many" in keeper.fault)
        clock.now += 5
        assert keeper.unsaved_seconds == 5
        keeper.keep(saved_flag(), changed=True)
        await until(lambda: not keeper.unsaved_seconds)


class SlowDisk(LastGood):
    """Takes nothing until it is let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "one")
        self.begun, self.let = 0, threading.Semaphore(0)

    def save(self, saved: Saved, make_room: Callable[[int], bool] | None = None) -> None:
        self.begun += 1
        assert self.let.acquire(timeout=60)
        super().save(saved, make_room)


async def test_what_comes_up_while_the_one_before_is_written_is_unsaved_since_then(tmp_path: Path) -> None:
    clock, disk = Clock(1_000.0), SlowDisk(tmp_path)
    async with run_writer(disk, clock) as keeper:
        keeper.keep(saved_flag(number=1), changed=True)
        await until(lambda: disk.begun == 1)
        clock.now += 2
        keeper.keep(saved_flag(number=2), changed=True)
        clock.now += 1
        disk.let.release()
        await until(lambda: disk.begun == 2)
        assert (keeper.last_save_seconds, keeper.unsaved_seconds) == (3, 1)
        disk.let.release()
        await until(lambda: not keeper.unsaved_seconds)
        assert keeper.last_save_seconds == 1


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    last_good = LastGood(tmp_path / "state", "../one")
    last_good.save(saved_flag())
    assert last_good.path.parent == tmp_path / "state"
    assert last_good.path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def leave(folder: Path, name: str, age: float) -> None:
    (folder / name).write_bytes(b"left")
    os.utime(folder / name, (NOW.timestamp() - age,) * 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("", ".damaged"), (".", ".abc.unfinished")],
    ids=["a set", "one that was set aside", "half a set"],
)
def test_what_a_source_left_goes_a_month_after_it_is_followed_no_more(
    tmp_path: Path, before: str, after: str
) -> None:
    followed, gone = LastGood(tmp_path, "followed"), LastGood(tmp_path, "gone")
    names = [f"{before}{each.path.name}{after}" for each in (followed, gone)]
    for name in names:
        leave(tmp_path, name, KEPT_SECONDS + 60)
    leave(tmp_path, "another.flags", KEPT_SECONDS + 60)
    assert sweep(tmp_path, [followed], NOW.timestamp()) == 1
    assert {each.name for each in tmp_path.iterdir()} == {names[0], "another.flags"}


def test_what_a_source_left_lately_stays(tmp_path: Path) -> None:
    leave(tmp_path, LastGood(tmp_path, "gone").path.name, KEPT_SECONDS - 60)
    assert sweep(tmp_path, [], NOW.timestamp()) == 0
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there_yet_is_swept_in_vain(tmp_path: Path) -> None:
    assert sweep(tmp_path / "state", [], NOW.timestamp()) == 0


def test_of_damaged_files_the_newest_alone_is_kept(tmp_path: Path) -> None:
    last_good = LastGood(tmp_path, "one")
    for content in (b"first", b"second"):
        last_good.path.write_bytes(content)
        assert last_good.load() is None
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"second"]
