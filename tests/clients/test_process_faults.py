"""An evaluator whose disk, clock or life fails: it serves on, keeps what is whole, and comes back with the
newest.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from evaluator.flags.saved import decode
from evaluator.settings import Settings
from evaluator.store.store import Store
from evaluator.sync.config import Provider, SourceConfig
from evaluator.sync.follower import Followers
from evaluator.sync.lastgood import StateFolder
from evaluator.sync.opening import open_sources
from evaluator.wiring import serve
from tests.clients.asking import served_value
from tests.clients.evaluator import evaluator
from tests.clients.server import until
from tests.clients.test_evaluator import readiness, ready
from tests.clients.test_upstream_faults import numbered_flags
from tests.clients.upstreams import replace
from tests.clients.watching import Stopwatch, open_watcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.clients.disks import Disk

pytestmark = pytest.mark.faults

FILE = ("-f", "file:flags.json")


def kept_value(state: Path) -> int:
    """The flag's value in the one last good file; 0 where there is none."""
    found = [file.read_bytes() for file in state.glob("*.flags")]
    return int(decode(found[0]).flag_set.flags["banner"].variants["now"]) if found else 0


def unsaved_gauge(management: int) -> float:
    """What the gauge says."""
    with urlopen(f"http://127.0.0.1:{management}/metrics", timeout=30) as answer:
        found = re.search(rb"^flagstaff_source_unsaved_seconds\{.*\} (.+)$", answer.read(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("disk", ["space", "files"], indirect=True)
def test_newest_flags_are_saved_on_a_full_disk_in_the_room_that_is_kept_for_them(
    disk: Disk, tmp_path: Path
) -> None:
    state = disk.folder / "state"
    words = [*FILE, "--state-dir", str(state)]
    replace(tmp_path / "flags.json", numbered_flags(1))
    with evaluator(*words, cwd=tmp_path) as running:
        ports = ready(running)
        with open_watcher(ports["grpc"]) as seen:
            assert until(lambda: kept_value(state) == 1)
            disk.fill(running.process)
            for number in (2, 3):
                replace(tmp_path / "flags.json", numbered_flags(number))
                assert seen.sees(number)
                assert until(lambda number=number: kept_value(state) == number)  # type: ignore[misc]
            assert unsaved_gauge(ports["management"]) == 0
    (tmp_path / "flags.json").unlink()
    with evaluator(*words, cwd=tmp_path) as running:
        assert served_value(ready(running)["ofrep"]) == 3


def large(number: int) -> str:
    """A set that is larger than the room that is kept for the one before."""
    flag = {"state": "ENABLED", "variants": {"text": "x" * 200_000}, "defaultVariant": "text"}
    flags = json.loads(numbered_flags(number))["flags"]
    return json.dumps({"flags": {**flags, "large": flag}})


@pytest.mark.parametrize("disk", ["space", "quota"], indirect=True)
def test_flags_without_room_are_served_from_a_full_disk_and_saved_once_there_is_room(
    disk: Disk, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    state = disk.folder / "state"
    words = [*FILE, "--state-dir", str(state)]
    replace(tmp_path / "flags.json", numbered_flags(1))
    with evaluator(*words, cwd=tmp_path) as running:
        ports = ready(running)
        port, management = ports["grpc"], ports["management"]
        with open_watcher(port) as seen:
            assert until(lambda: kept_value(state) == 1)
            disk.fill(running.process)
            replace(tmp_path / "flags.json", large(2))
            running.next_event("its last good flag set cannot be saved")
            assert seen.sees(2)
            assert (kept_value(state), unsaved_gauge(management) > 0) == (1, True)
            disk.empty(running.process)
            since = Stopwatch()
            running.next_event("its last good flag set is saved again")
            record_property("recovery", f"disk full: saved again in {since.seconds} s")
            assert until(lambda: unsaved_gauge(management) == 0)
        assert (seen.seen, kept_value(state)) == ([1, 2], 2)
    (tmp_path / "flags.json").unlink()
    with evaluator(*words, cwd=tmp_path) as running:
        assert served_value(ready(running)["ofrep"]) == 2


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[:-20],
    "a bit flipped": lambda content: content.replace(b'"now":1', b'"now":3'),
    "empty": lambda _: b"",
    "noise": lambda content: bytes(range(256)) * (len(content) // 256 + 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_last_good_file_is_set_aside_and_the_source_takes_its_place(
    damage: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    state, words = tmp_path / "state", [*FILE, "--state-dir", "state"]
    replace(tmp_path / "flags.json", numbered_flags(1))
    with evaluator(*words, cwd=tmp_path):
        assert until(lambda: kept_value(state) == 1)
    (tmp_path / "flags.json").unlink()
    (file,) = state.glob("*.flags")
    harmed = DAMAGE[damage](file.read_bytes())
    assert harmed != file.read_bytes()
    file.write_bytes(harmed)
    with evaluator(*words, cwd=tmp_path) as running:
        assert running.next_event("damaged")["level"] == "error"
        ports = running.next_event("listening")
        running.next_event("the source is stale")
        assert readiness(ports["management"]) == 412
        replace(tmp_path / "flags.json", numbered_flags(2))
        since = Stopwatch()
        running.next_event("flags served")
        record_property("recovery", f"last good {damage}: {since.seconds} s")
        assert served_value(ports["ofrep"]) == 2
        assert until(lambda: kept_value(state) == 2)
    assert [aside.read_bytes() for aside in state.glob("*.damaged")] == [harmed]


YEAR = 31_536_000.0


class Clock:
    """Unix seconds of a machine whose clock is set while it runs."""

    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.time() + self.shift  # noqa: TID251 - what it jumps from is the real one


@pytest.mark.parametrize("field", ["interval", "interval_seed", "cron"])
async def test_a_clock_that_jumps_by_years_keeps_no_newest_flags_away(
    field: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    values: dict[str, Any] = {"interval": 1.0, "interval_seed": "x", "cron": "* * * * * *"}
    clock, path = Clock(), tmp_path / "flags.json"
    upstream = await asyncio.start_server(lambda r, w: _answer(path, r, w), "127.0.0.1", 0)
    uri = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/flags.json"
    schedule = {"interval": 1.0, field: values[field]}
    sources = open_sources([SourceConfig(uri, Provider.HTTP, **schedule)], clock=clock)
    store = Store(sources=[source.name for source in sources])
    folder = StateFolder(tmp_path / "state", None, clock)
    followers = Followers(sources, store, clock=clock, folder=folder)
    settings = Settings(host="127.0.0.1", port=0, management_port=0, ofrep_port=0, sync_port=0)
    replace(path, numbered_flags(0))
    serving = await serve(store, settings, clock=clock)
    following = asyncio.create_task(followers.run())
    for number, clock.shift in enumerate((0, YEAR, -50 * YEAR, 3 * YEAR, 0)):
        replace(path, numbered_flags(number))
        since = Stopwatch()
        assert await asyncio.to_thread(until, lambda: value(serving.ports.ofrep) == number)  # noqa: B023 - waited for
        record_property("recovery", f"clock moved, {field}: {since.seconds} s")
        assert await asyncio.to_thread(readiness, serving.ports.management) == 200
        assert (store.age(clock()) or 0) < 30
        assert await asyncio.to_thread(until, lambda: kept_value(tmp_path / "state") == number)  # noqa: B023 - waited for
    following.cancel()
    await serving.stop()
    upstream.close()


def value(port: int) -> Any:
    with suppress(OSError, KeyError):
        return served_value(port)
    return None


async def _answer(path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        content = await asyncio.to_thread(path.read_bytes)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + content)
    writer.close()


class Publisher:
    """Publishes 1, 2, 3, … as the flag's value, as fast as an evaluator reads them, until the block ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.last = 0

    def _run(self) -> None:
        for number in itertools.count(1):
            self.last = number
            replace(self._path, numbered_flags(number))
            if self._over.wait(0.005):
                return

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


# One process forks an evaluator a hundred times, so that no kill waits for an interpreter to start.
KILLED = """
import asyncio, os, random, signal, sys, time
from pathlib import Path
import uvloop
from evaluator.flags.saved import decode
from evaluator.settings import Settings
from evaluator.sync.config import Provider, SourceConfig
from evaluator.wiring import run

state = Path("state")
settings = Settings(
    host="127.0.0.1", port=0, management_port=0, ofrep_port=0, sync_port=0, state_dir=state,
    sources=(SourceConfig("flags.json", Provider.FILE),),
)

def kept():
    found = list(state.glob("*.flags"))
    return decode(found[0].read_bytes()).flag_set.flags["banner"].variants["now"] if found else 0

chance = random.Random(20261121)
for _ in range(100):
    before = kept()
    child = os.fork()
    if not child:
        uvloop.run(run(settings))
    while kept() == before:
        time.sleep(0.001)
    time.sleep(chance.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(kept())
"""


def test_a_hundred_kills_while_last_good_is_written_leave_a_whole_and_ever_newer_set(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    state, words = tmp_path / "state", [*FILE, "--state-dir", "state"]
    with Publisher(tmp_path / "flags.json") as publishing:
        result = subprocess.run(
            [sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True, check=False
        )
    found = [int(number) for number in result.stdout.split()]
    assert (result.stderr, len(found)) == ("", 100)
    assert found == sorted(set(found))
    assert found[-1] <= publishing.last
    since = Stopwatch()
    with evaluator(*words, cwd=tmp_path) as running:
        port = running.next_event("listening")["ofrep"]
        assert until(lambda: value(port) == publishing.last)
        record_property("recovery", f"killed a hundred times: {since.seconds} s, start included")
    # Beside it are the room for the next set and the folder of earlier versions, and no remains of a kill.
    assert {file.suffix for file in state.iterdir() if file.is_file()} == {".flags", ".spare"}
