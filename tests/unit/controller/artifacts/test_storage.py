from __future__ import annotations

import errno
import logging
import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from controller.artifacts.storage import Storage
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from pathlib import Path

    from controller.artifacts.storage import Artifact


def put(storage: Storage, archive: bytes, revision: str = "main@sha1:1") -> Artifact:
    return storage.put(archive, revision=revision, metadata={"flagstaff.dev/author": "Ada <ada@example.com>"})


def files(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_what_is_put_is_opened_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "store")
    artifact = put(storage, b"archive")
    assert storage.open(artifact) == b"archive"
    assert (artifact.size, artifact.revision) == (7, "main@sha1:1")


def test_an_empty_store_has_no_latest(tmp_path: Path) -> None:
    assert Storage(tmp_path).latest() is None


def test_the_latest_survives_a_restart(tmp_path: Path) -> None:
    put(Storage(tmp_path), b"one")
    newest = put(Storage(tmp_path), b"two")
    again = Storage(tmp_path)
    assert again.latest() == newest
    assert again.open(newest) == b"two"


def test_only_the_owner_can_read_the_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    artifact = put(Storage(root), b"one")
    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / artifact.path).stat().st_mode & 0o777 == 0o600
    assert (root / "index.json").stat().st_mode & 0o777 == 0o600


def test_the_same_archive_of_another_revision_is_one_file_and_the_newest_story(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    first = put(storage, b"same", "main@sha1:1")
    inode = (tmp_path / first.path).stat().st_ino
    second = put(storage, b"same", "main@sha1:2")
    assert storage.latest() == second
    assert (tmp_path / first.path).stat().st_ino == inode
    assert len(files(tmp_path)) == 2


def test_old_archives_go_by_number(tmp_path: Path) -> None:
    storage = Storage(tmp_path, retain=2)
    stored = [put(storage, bytes([number])) for number in range(4)]
    assert files(tmp_path) == {"index.json", stored[2].path, stored[3].path}
    with pytest.raises(Failed, match="no longer in storage"):
        storage.open(stored[0])


def test_old_archives_go_by_size_but_the_latest_always_stays(tmp_path: Path) -> None:
    storage = Storage(tmp_path, retain_bytes=10)
    put(storage, b"x" * 6)
    put(storage, b"y" * 6)
    largest = put(storage, b"z" * 60)
    assert files(tmp_path) == {"index.json", largest.path}
    assert storage.open(largest) == b"z" * 60


@pytest.mark.parametrize("content", [b"changed", b"", b"archive and more"])
def test_a_damaged_archive_is_set_aside_and_never_given_out(tmp_path: Path, content: bytes) -> None:
    storage = Storage(tmp_path)
    before = put(storage, b"before")
    artifact = put(storage, b"archive")
    (tmp_path / artifact.path).write_bytes(content)
    with pytest.raises(Failed) as failure:
        storage.open(artifact)
    assert failure.value.reason == "ArtifactDamaged"
    assert (tmp_path / f"{artifact.path}.damaged").read_bytes() == content
    assert storage.latest() == before


def test_an_archive_is_read_again_only_once_its_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(tmp_path)
    artifact = put(storage, b"archive")
    storage.require(artifact)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "open", None)
        storage.require(artifact)
    (tmp_path / artifact.path).write_bytes(b"damaged")
    with pytest.raises(Failed, match="damaged"):
        storage.require(artifact)
    with pytest.raises(Failed, match="no longer in storage"):
        storage.require(artifact)


def test_a_damaged_archive_is_mended_when_it_is_put_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    artifact = put(storage, b"archive")
    (tmp_path / artifact.path).write_bytes(b"changed")
    assert storage.open(put(storage, b"archive")) == b"archive"


@pytest.mark.parametrize("content", [b"{", b"\xff\n", b"[" * 100_000, b'{"revision":1}\n'])
def test_a_damaged_index_is_set_aside_and_reported(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(Storage(tmp_path), b"archive")
    (tmp_path / "index.json").write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert Storage(tmp_path).latest() is None
    assert "index.json.damaged" in caplog.text
    assert files(tmp_path) == {"index.json.damaged"}


def test_what_killed_writes_left_is_removed_at_the_start(tmp_path: Path) -> None:
    artifact = put(Storage(tmp_path), b"archive")
    (tmp_path / ".index.json.abc.unfinished").write_bytes(b"half")
    (tmp_path / ("0" * 64 + ".tar.gz")).write_bytes(b"stored, but never in the index")
    assert Storage(tmp_path).latest() == artifact
    assert files(tmp_path) == {"index.json", artifact.path}


@pytest.mark.parametrize("failing", ["mkstemp", "fsync", "replace"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_full_disk_loses_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, nth: int
) -> None:
    storage = Storage(tmp_path)
    before = put(storage, b"before")
    with monkeypatch.context() as patched:
        fail_at(patched, failing, nth)
        with pytest.raises(Failed) as failure:
            put(storage, b"archive", "main@sha1:2")
    assert failure.value.reason == "StorageFull"
    assert "main@sha1:2" in failure.value.message
    assert storage.latest() == before == Storage(tmp_path).latest()
    assert files(tmp_path) == {"index.json", before.path}
    assert storage.open(put(storage, b"archive")) == b"archive"


def fail_at(monkeypatch: pytest.MonkeyPatch, function: str, nth: int) -> None:
    module = tempfile if function == "mkstemp" else os
    real = getattr(module, function)
    calls = iter(range(1, 100))

    def fail_once(*arguments: object, **named: object) -> object:
        if next(calls) == nth:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **named)

    monkeypatch.setattr(module, function, fail_once)


def test_a_store_that_cannot_be_made_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Failed) as failure:
        Storage(tmp_path / "file" / "store")
    assert failure.value.reason == "StorageFailed"


def test_an_archive_that_cannot_be_read_is_a_failure_and_stays(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    artifact = put(storage, b"archive")
    (tmp_path / artifact.path).unlink()
    (tmp_path / artifact.path).mkdir()
    with pytest.raises(Failed) as failure:
        storage.open(artifact)
    assert failure.value.reason == "StorageFailed"
    assert storage.latest() == artifact


def test_long_metadata_is_cut_and_survives_a_restart(tmp_path: Path) -> None:
    metadata = {"author": "\U0001f600" * 5000, "subject": "\udcff" * 5000}
    artifact = Storage(tmp_path).put(b"x", revision="r" * 1024, metadata=metadata)
    assert [len(value) for value in artifact.metadata.values()] == [1024, 1024]
    assert Storage(tmp_path).latest() == artifact
