from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evaluator.flags.model import Flag, FlagSet, State
from evaluator.flags.saved import MAX_BYTES, Saved, decode, encode
from evaluator.sync.lastgood import LastGood

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
from evaluator.sync.lastgood import LastGood

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
