from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from controller.runtime.temporary import TemporaryFolder, sweep_temporary

if TYPE_CHECKING:
    from pathlib import Path

KILLED = """
import os, signal, tempfile
from controller.runtime.temporary import TemporaryFolder
(TemporaryFolder.make().path / "key").write_text("KEY")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_folder_is_ours_alone_and_goes_with_what_is_in_it(place: Path) -> None:
    folder = TemporaryFolder.make()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "folder").mkdir()
    folder.remove()
    assert not list(place.iterdir())


def test_what_a_killed_process_left_is_swept(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert len(list(place.glob("*/key"))) == 1
    sweep_temporary()
    assert not list(place.iterdir())


def test_what_is_in_use_and_what_is_not_ours_stays(place: Path) -> None:
    folder = TemporaryFolder.make()
    (place / "another").mkdir()
    (place / "flagstaff-temporary-link").symlink_to(place / "another")
    sweep_temporary()
    assert len(list(place.iterdir())) == 3
    folder.remove()


def test_a_folder_that_cannot_be_made_fails(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "nowhere"))
    with pytest.raises(OSError, match="nowhere"):
        TemporaryFolder.make()
