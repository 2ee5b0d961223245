from __future__ import annotations

import errno
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from evaluator.host import durable

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import itertools, sys
from pathlib import Path
from evaluator.host.durable import write_file
for number in itertools.count():
    write_file(Path(sys.argv[1]), f"{number:08}".encode() * 20_000)
    print(number, flush=True)
"""

HOLDER = """
import sys
from pathlib import Path
from evaluator.host.durable import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

LIMITED = """
import resource, sys
from pathlib import Path
from evaluator.host.durable import write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_file(Path(sys.argv[1]), b"n" * 5000)
except OSError as error:
    print(error.errno)
"""


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a longer content before")
    durable.write_file(path, b"after")
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_write_that_runs_out_of_room_half_way_leaves_the_old_content_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_at_any_moment_leaves_one_whole_version(tmp_path: Path) -> None:
    path = tmp_path / "file"
    chance = random.Random(7)
    for _ in range(12):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.random() * 0.02)
        child.kill()
        printed = child.communicate()[0].split()
        content = path.read_bytes()
        assert content == content[:8] * 20_000
        assert int(content[:8]) >= int(printed[-1] if printed else 0)
    durable.sweep(tmp_path, "file")
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_named_files_leftovers_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".one.abc.unfinished").touch()
    (tmp_path / ".two.abc.unfinished").touch()
    durable.sweep(tmp_path, "one")
    assert [path.name for path in tmp_path.iterdir()] == [".two.abc.unfinished"]


def test_reading_stops_just_past_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert durable.read_file(tmp_path / "file", 4) == b"01234"


def test_what_was_saved_is_loaded_and_what_is_damaged_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "made" / "number"
    assert durable.load(path, 10, int) is None
    durable.save(path, b"42")
    assert durable.load(path, 10, int) == 42
    path.write_bytes(b"forty")
    assert durable.load(path, 10, int) is None
    assert path.with_name("number.damaged").read_bytes() == b"forty"
    assert "number.damaged" in caplog.text


def test_a_folder_is_locked_by_one_process_until_that_process_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "of-one"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(durable.FolderInUseError, match=r"of-one is in use by another process"):
            durable.lock_folder(folder).__enter__()
        holder.kill()
    with durable.lock_folder(folder):
        assert list(folder.iterdir()) == []


def test_a_folder_can_be_locked_again_after_it_was_released(tmp_path: Path) -> None:
    for _ in range(2):
        with durable.lock_folder(tmp_path):
            pass
