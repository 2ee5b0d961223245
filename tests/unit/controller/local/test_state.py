"""The applied objects on disk: whole or not at all, whatever happens to disk and process."""

from __future__ import annotations

import errno
import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.local.state import AppliedFile, DeliveredObjects
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OBJECTS = ({"kind": "A", "spec": {"text": "ünï", "list": [1, 0.5, None]}}, {"kind": "B"})
FILE = "objects.json"


def test_what_is_saved_is_loaded_equal(tmp_path: Path) -> None:
    AppliedFile(tmp_path / "state").save(OBJECTS, NOW)
    assert AppliedFile(tmp_path / "state").load() == DeliveredObjects(OBJECTS, NOW)


@pytest.mark.parametrize("folder", [".", "missing"])
def test_nothing_saved_is_nothing_loaded(tmp_path: Path, folder: str) -> None:
    assert AppliedFile(tmp_path / folder).load() is None


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    AppliedFile(tmp_path / "state").save(OBJECTS, NOW)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / FILE).stat().st_mode & 0o777 == 0o600


@settings(max_examples=150)
@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255), st.booleans())
def test_a_changed_byte_or_a_cut_is_never_taken_for_something_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, flip: int, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("state")
    path = folder / FILE
    AppliedFile(folder).save(OBJECTS, NOW)
    content = bytearray(path.read_bytes())
    at %= len(content)
    if cut:
        del content[at:]
    else:
        content[at] ^= flip
    path.write_bytes(content)
    loaded = AppliedFile(folder).load()
    assert loaded in (None, DeliveredObjects(OBJECTS, NOW))
    assert path.exists() is (loaded is not None)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n{}", b"[" * 90, b"[" * 200_000, b"\xff\n", b'{"sha256": 2}\n', b"null\n"]
)
def test_a_damaged_file_is_set_aside_reported_and_not_read(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert AppliedFile(tmp_path).load() is None
    assert (tmp_path / f"{FILE}.damaged").read_bytes() == content
    assert f"{FILE}.damaged" in caplog.text


def test_a_full_disk_keeps_the_old_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppliedFile(tmp_path)
    file.save(OBJECTS, NOW)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Failed) as failure:
            file.save((), NOW)
    assert failure.value.reason == "StorageFull"
    assert file.load() == DeliveredObjects(OBJECTS, NOW)


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_that_cannot_be_read_is_a_failure_and_stays(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(Failed) as failure:
        AppliedFile(tmp_path).load()
    assert failure.value.reason == "StorageFailed"
