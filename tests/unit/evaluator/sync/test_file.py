from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from evaluator.sync import file_source as file_module
from evaluator.sync.file_source import FileSource
from evaluator.sync.schedule import SourceTiming
from evaluator.sync.source import MAX_BYTES, Delivery, SourceEvents, SourceFault, Unchanged
from evaluator.sync.watch import FolderWatch, places
from tests.clock import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from evaluator.sync.source import SourceEvent


def source(path: Path, *, watch: bool = True, poll: float = 0.02) -> FileSource:
    timing = SourceTiming(poll=30.0 if watch else poll, longest_writing=0.6)
    return FileSource(str(path), "identity", path, Clock(1_000.0), watch=watch, timing=timing)


def changes(path: Path, *, watch: bool = True) -> AsyncGenerator[SourceEvent, None]:
    return SourceEvents(source(path, watch=watch)).events()


def write(path: Path, text: str) -> None:
    path.write_text(text)


def replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def config_map(folder: Path, text: str) -> None:
    """As the kubelet mounts one: names lead through `..data`, which is swapped by rename."""
    version = folder / f"..{text}"
    version.mkdir(parents=True)
    (version / "flags.json").write_text(text)
    (folder / "..tmp").symlink_to(version.name)
    (folder / "..tmp").replace(folder / "..data")
    if not (folder / "flags.json").is_symlink():
        (folder / "flags.json").symlink_to("..data/flags.json")


async def next_delivery(deliveries: AsyncGenerator[SourceEvent, None], kind: type[Any]) -> Any:
    async for found in deliveries:
        if isinstance(found, kind):
            return found
    raise AssertionError


def text(delivery: Delivery) -> str:
    return delivery.documents[0][1].decode()


@pytest.fixture(params=["inotify alone", "looks alone"])
def watch(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "inotify alone")


@pytest.mark.parametrize("change", [write, replace], ids=["rewritten in place", "renamed over"])
async def test_a_change_is_delivered(
    tmp_path: Path, watch: bool, change: Callable[[Path, str], None]
) -> None:
    path = tmp_path / "flags.json"
    write(path, "one")
    deliveries = changes(path, watch=watch)
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    for number in ("two", "six", "ten"):
        change(path, number)
        assert text(await next_delivery(deliveries, Delivery)) == number
    await deliveries.aclose()


async def test_a_config_map_is_swapped(tmp_path: Path, watch: bool) -> None:
    config_map(tmp_path / "mount", "one")
    deliveries = changes(tmp_path / "mount" / "flags.json", watch=watch)
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    for number in ("two", "three"):
        config_map(tmp_path / "mount", number)
        assert text(await next_delivery(deliveries, Delivery)) == number
    await deliveries.aclose()


async def test_a_mounted_folder_is_swapped_as_one(tmp_path: Path, watch: bool) -> None:
    config_map(tmp_path, "one")
    deliveries = changes(tmp_path, watch=watch)
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    config_map(tmp_path, "two")
    delivered = await next_delivery(deliveries, Delivery)
    assert delivered.documents == ((str(tmp_path / "flags.json"), b"two"),)
    await deliveries.aclose()


async def test_a_file_may_come_late_go_and_come_back(tmp_path: Path, watch: bool) -> None:
    path = tmp_path / "not yet" / "flags.json"
    deliveries = source(path, watch=watch).deliveries()
    assert (await next_delivery(deliveries, SourceFault)).reason == "NotFound"
    path.parent.mkdir()
    write(path, "one")
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    shutil.rmtree(path.parent)
    assert (await next_delivery(deliveries, SourceFault)).reason == "NotFound"
    path.parent.mkdir()
    replace(path, "one")
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    await deliveries.aclose()


async def test_the_definitions_of_a_folder_are_delivered_together_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "c.yml", "notes.txt", ".hidden.json"):
        write(tmp_path / name, name)
    deliveries = changes(tmp_path)
    delivered = await next_delivery(deliveries, Delivery)
    assert [content for _, content in delivered.documents] == [b"a.json", b"b.yaml", b"c.yml"]
    write(tmp_path / "a.json", "changed")
    assert (await next_delivery(deliveries, Delivery)).documents[0][1] == b"changed"
    await deliveries.aclose()


async def test_an_unchanged_file_is_reported_as_such(tmp_path: Path) -> None:
    write(tmp_path / "flags.json", "one")
    deliveries = changes(tmp_path / "flags.json", watch=False)
    assert [type(await anext(deliveries)) for _ in range(5)] == [Delivery] + [Unchanged] * 4
    await deliveries.aclose()


async def test_a_second_change_that_leaves_no_trace_in_the_times_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "_mark", lambda name, status: (name, status.st_size))
    path = tmp_path / "flags.json"
    write(path, "one")
    deliveries = changes(path, watch=False)
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    write(path, "two")
    assert text(await next_delivery(deliveries, Delivery)) == "two"
    await deliveries.aclose()


@pytest.mark.parametrize("anew", [False, True], ids=["in place", "made anew"])
async def test_yaml_is_taken_once_it_is_whole(tmp_path: Path, watch: bool, anew: bool) -> None:
    path = tmp_path / "flags.yaml"
    write(path, "one")
    looking = FileSource("f", "identity", path, lambda: tmp_path.stat().st_mtime, watch=watch)
    deliveries = SourceEvents(looking).events() if anew else changes(path, watch=watch)
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    changed = asyncio.ensure_future(next_delivery(deliveries, Delivery))
    if anew:
        path.rename(path.with_suffix(".backup"))
    with path.open("w") as file:
        for line in ("a: 1\n", "b: 2\n", "c: 3\n"):
            file.write(line)
            file.flush()
            await asyncio.sleep(0.05)
    assert text(await changed) == "a: 1\nb: 2\nc: 3\n"
    await deliveries.aclose()


def looks(path: Path, before: str, change: Callable[[Path, str], None]) -> Any:
    """What two looks at once after a change to "two" find."""
    looking = FileSource("f", "identity", path, Clock(0.0), watch=False)
    write(path, before)
    assert looking.read_now(False) is not None
    change(path, "two, which is longer")
    return [looking.read_now(False) for _ in range(2)]


@pytest.mark.parametrize(
    ("name", "change", "waits"),
    [
        ("flags.yaml", write, True),
        ("flags.yml", write, True),
        ("flags.yaml", replace, False),
        ("flags.json", write, False),
    ],
)
def test_only_yaml_in_place_is_looked_at_twice(
    tmp_path: Path, name: str, change: Callable[[Path, str], None], waits: bool
) -> None:
    first, second = looks(tmp_path / name, "one", change)
    assert (first is None) is waits
    assert isinstance(second if waits else first, Delivery)


def test_yaml_that_was_written_just_before_the_first_look_is_looked_at_twice(tmp_path: Path) -> None:
    path = tmp_path / "flags.yaml"
    write(path, "one")
    now = path.stat().st_mtime
    looking = [FileSource("f", "identity", path, Clock(now + age)) for age in (0.5, 5.0)]
    assert [each.read_now(False) is None for each in looking] == [True, False]


def make_anew(path: Path, text: str) -> None:
    """As editors with a backup, `git checkout` and `cp` after `rm` do: another inode, written in
    its place.
    """
    path.rename(path.with_suffix(".backup"))
    path.write_text(text)


def replace_later(path: Path, text: str) -> None:
    """What was written a while ago comes by rename."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    written = fresh.stat().st_mtime_ns - 100_000_000
    os.utime(fresh, ns=(written, written))
    fresh.replace(path)


@pytest.mark.parametrize(
    ("change", "age", "waits"),
    [
        pytest.param(make_anew, 0.2, True, id="made anew now"),
        pytest.param(make_anew, 5.0, False, id="made anew a while ago"),
        pytest.param(replace_later, 0.2, False, id="renamed now"),
    ],
)
def test_yaml_in_another_inode_is_looked_at_twice_unless_it_was_renamed_there(
    tmp_path: Path, change: Callable[[Path, str], None], age: float, waits: bool
) -> None:
    path, clock = tmp_path / "flags.yaml", Clock(0.0)
    write(path, "one")
    looking = FileSource("f", "identity", path, clock, watch=False)
    assert looking.read_now(False) is not None
    change(path, "two")
    clock.now = path.stat().st_mtime + age
    assert (looking.read_now(False) is None) is waits


async def test_yaml_that_is_written_on_and_on_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flags.yaml"
    write(path, "one")
    looking = source(path)
    monkeypatch.setattr(looking, "_may_be_half", lambda _: True)
    sizes = iter(range(100))
    monkeypatch.setattr(looking, "_now", lambda: (("", 1, 1, next(sizes), 0, 0),))
    assert (await next_delivery(looking.deliveries(), SourceFault)).reason == "Changing"


async def test_files_that_are_too_large_together_are_not_read(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, MAX_BYTES // 2 + 1)
    deliveries = changes(tmp_path)
    assert (await next_delivery(deliveries, SourceFault)).reason == "TooLarge"
    await deliveries.aclose()


async def test_what_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    write(tmp_path / "flags.json", "one")
    deliveries = changes(tmp_path / "flags.json" / "below")
    assert (await next_delivery(deliveries, SourceFault)).reason == "Unreadable"
    await deliveries.aclose()


async def test_what_is_closed_before_its_thread_could_arm_it_opens_nothing(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path)
    watch.close()
    await watch.arm()
    assert not watch.watching


def test_folders_of_all_links_on_the_way_are_watched(tmp_path: Path) -> None:
    (tmp_path / "releases" / "1").mkdir(parents=True)
    (tmp_path / "srv").mkdir()
    write(tmp_path / "releases" / "1" / "flags.json", "one")
    (tmp_path / "srv" / "current").symlink_to("../releases/1")
    watched = places(tmp_path / "srv" / "current" / "flags.json")
    assert watched == (tmp_path / "srv", tmp_path / "releases" / "1")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert places(tmp_path / "a" / "flags.json") == (tmp_path,)


@pytest.mark.parametrize("where", ["flags.json", "folder/flags.json"])
async def test_a_fifo_that_takes_a_files_place_is_a_fault_until_a_file_is_back(
    tmp_path: Path, watch: bool, where: str
) -> None:
    path = tmp_path / where
    path.parent.mkdir(exist_ok=True)
    write(path, "one")
    deliveries = changes(path if path.parent == tmp_path else path.parent, watch=watch)
    assert text(await next_delivery(deliveries, Delivery)) == "one"
    path.unlink()
    os.mkfifo(path)
    fault = await next_delivery(deliveries, SourceFault)
    while fault.reason == "NotFound":
        fault = await next_delivery(deliveries, SourceFault)
    assert "it is a FIFO, which cannot be followed; use a regular file or a folder" in fault.message
    path.unlink()
    write(path, "two")
    assert text(await next_delivery(deliveries, Delivery)) == "two"
    await deliveries.aclose()
