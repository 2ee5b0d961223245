from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.sync.lastgood import KEPT_SECONDS, LastGood, sweep

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

# One process forks a writer a hundred times, so that no kill waits for an interpreter to start.
KILLED = """
import itertools, os, random, signal, sys, time
from datetime import UTC, datetime
from pathlib import Path
from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.saved import Saved
from evaluator.sync.lastgood import KEPT_SECONDS, LastGood, sweep

last_good = LastGood(Path(sys.argv[1]), "source")

def write(start):
    for number in itertools.count(start):
        flags = {f"f{at}": Flag(f"f{at}", State.ENABLED, {"on": number}, "on") for at in range(200)}
        last_good.save(Saved(FlagSet(flags), datetime(2026, 1, 2, tzinfo=UTC)))
        os.write(told, b"%d\\n" % number)

chance, newest = random.Random(5), 0
for _ in range(100):
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        write(newest + 1)
    os.close(told)
    first = os.read(heard, 100)
    time.sleep(chance.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    newest = int((first + os.read(heard, 10**6)).split()[-1])
    os.close(heard)
    saved = last_good.load()
    values = {flag.variants["on"] for flag in saved.flag_set.flags.values()}
    assert len(saved.flag_set.flags) == 200 and len(values) == 1, values
    assert values.pop() >= newest, newest
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()) == [last_good.path.name])
"""


def test_a_hundred_kills_at_any_moment_leave_a_whole_set_and_no_litter(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (told.stdout, told.stderr) == ("True\n", "")


def saved(**context: object) -> Saved:
    flag = Flag("a", State.ENABLED, {"on": True}, "on")
    return Saved(FlagSet({"a": flag}), NOW, context)


@pytest.mark.parametrize("context", [{}, {"region": "eu", "deep": [1, {"a": None}]}])
def test_a_set_comes_back_with_its_context(tmp_path: Path, context: dict[str, object]) -> None:
    LastGood(tmp_path, "one").save(saved(**context))
    assert LastGood(tmp_path, "one").load() == saved(**context)
    assert LastGood(tmp_path, "another").load() is None


def test_a_context_that_was_changed_is_noticed() -> None:
    content = encode(saved(region="eu")).replace(b'"eu"', b'"us"')
    with pytest.raises(ValueError, match="checksum"):
        decode(content)


def test_what_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="too many"):
        encode(saved(region="x" * (MAX_BYTES // 256)))


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    last_good = LastGood(tmp_path / "state", "../one")
    last_good.save(saved())
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
