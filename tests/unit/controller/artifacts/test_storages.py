from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from controller.api.meta import ObjectKey
from controller.artifacts.storage import Storages
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = ObjectKey("FlagSource", "apps", "flags")
OTHER = ObjectKey("FlagSource", "apps", "other")


@pytest.fixture
def storages(tmp_path: Path) -> Iterator[Storages]:
    made = Storages(tmp_path, "http://artifacts:9090/")
    yield made
    made.close()


def put(storages: Storages, archive: bytes = b"archive", key: ObjectKey = KEY) -> str:
    """Its path."""
    artifact = storages.of(key).put(
        archive, revision="main@sha1:1", metadata={"flagstaff.dev/author": "Ada <ada@example.com>"}
    )
    return storages.url(key, artifact)[0]


def test_a_url_is_below_the_servers(storages: Storages) -> None:
    artifact = storages.of(KEY).find("sha256:" + put(storages)[-71:-7])
    assert artifact is not None
    path, url = storages.url(KEY, artifact)
    assert path == f"flagsource/apps/flags/{artifact.path}"
    assert url == f"http://artifacts:9090/{path}"


def test_what_is_stored_is_read_by_its_path_also_after_a_restart(storages: Storages, tmp_path: Path) -> None:
    path = put(storages)
    for each in (storages, Storages(tmp_path, "")):
        assert each.read(path) == b"archive"
    assert (tmp_path / path).read_bytes() == b"archive"


def test_each_source_has_its_own(storages: Storages) -> None:
    path = put(storages)
    put(storages, b"another", OTHER)
    assert storages.read(path.replace("/flags/", "/other/")) is None
    assert storages.read(path.replace("/apps/", "/other/")) is None


DIGEST = "a" * 64
STRANGE = [
    "",
    "flagsource",
    "flagsource/apps/flags",
    "flagsource/apps/flags/index.json",
    f"flagsource/apps/flags/{DIGEST}.tar.gz",
    f"flagsource/apps/nobody/{DIGEST}.tar.gz",
    f"flagsource/../flagsource/apps/flags/{DIGEST}.tar.gz",
    f"flagsource/apps/../apps/flags/{DIGEST}.tar.gz",
    f"flagsource/apps/../{DIGEST}.tar.gz",
    f"flagsource/./flags/{DIGEST}.tar.gz",
    f"flagsource/apps//{DIGEST}.tar.gz",
    f"flagsource/apps/flags/../../../{DIGEST}.tar.gz",
    f"flagsource/apps/flags/{DIGEST}.tar.gz\n",
    f"flagsource/APPS/flags/{DIGEST}.tar.gz",
    f"flagsource/{'a' * 300}/flags/{DIGEST}.tar.gz",
    f"/flagsource/apps/flags/{DIGEST}.tar.gz",
    "flagsource/apps/flags/\0",
]


def test_what_is_stored_is_found_unread(storages: Storages, tmp_path: Path) -> None:
    path = put(storages)
    found = storages.find(path)
    assert found is not None
    assert (found.file, found.size) == (tmp_path / path, len(b"archive"))
    assert found.digest[7:] in path
    storages.read(path)
    storages.forget(KEY)
    assert storages.find(path) is None


def test_one_that_was_damaged_is_set_aside_by_a_check(storages: Storages, tmp_path: Path) -> None:
    path = put(storages)
    storages.read(path)
    (tmp_path / path).write_bytes(b"damaged")
    with pytest.raises(Failed, match="the stored artifact is damaged"):
        storages.read(path)
    assert storages.find(path) is None
    storages.read(path)
    storages.read("flagsource/nothing")


@pytest.mark.parametrize("path", STRANGE)
def test_any_other_path_is_nothing_and_makes_no_folder(storages: Storages, tmp_path: Path, path: str) -> None:
    assert storages.find(path) is None
    (tmp_path / f"{DIGEST}.tar.gz").write_bytes(b"outside")
    put(storages)
    before = set(tmp_path.rglob("*"))
    assert storages.read(path) is None
    assert set(tmp_path.rglob("*")) == before


def test_a_source_that_is_gone_leaves_nothing_and_the_others_stay(storages: Storages, tmp_path: Path) -> None:
    path, kept = put(storages), put(storages, b"another", OTHER)
    storages.forget(KEY)
    assert storages.read(path) is None
    storages.close()
    assert not (tmp_path / path).parent.exists()
    assert storages.read(kept) is not None


def test_the_last_of_a_namespace_takes_its_folder_along(storages: Storages, tmp_path: Path) -> None:
    put(storages)
    storages.forget(KEY)
    storages.close()
    assert not (tmp_path / "flagsource/apps").exists()


def test_a_name_that_is_used_again_waits_for_what_was_there_to_go(
    storages: Storages, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(storages)
    removing, go_on = threading.Event(), threading.Event()
    remove = shutil.rmtree

    def slow(folder: Path, *, ignore_errors: bool) -> None:
        removing.set()
        assert go_on.wait(30)
        remove(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slow)
    storages.forget(KEY)
    assert removing.wait(30)
    again = threading.Thread(target=put, args=(storages, b"again"))
    again.start()
    go_on.set()
    again.join()
    latest = storages.of(KEY).latest()
    assert latest is not None
    assert storages.of(KEY).open(latest) == b"again"


def test_sources_that_went_while_nobody_looked_are_removed(storages: Storages, tmp_path: Path) -> None:
    path, kept = put(storages), put(storages, b"another", OTHER)
    (tmp_path / "flagsource/stray").write_text("no source's")
    later = Storages(tmp_path, "")
    later.keep([OTHER, ObjectKey("FlagSource", "new", "one")])
    later.close()
    assert not (tmp_path / path).exists()
    assert later.read(kept) is not None


def test_a_folder_that_is_lost_is_made_again(storages: Storages, tmp_path: Path) -> None:
    lost = put(storages)
    shutil.rmtree(tmp_path / "flagsource")
    assert storages.read(lost) is None
    assert storages.of(KEY).latest() is None
    assert storages.read(put(storages, b"again")) is not None


def test_an_archive_that_was_damaged_is_not_served(storages: Storages, tmp_path: Path) -> None:
    path = put(storages)
    (tmp_path / path).write_bytes(b"damaged")
    with pytest.raises(Failed, match="the stored artifact is damaged"):
        storages.read(path)
    assert storages.read(path) is None


def test_a_root_that_is_no_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("in the way")
    with pytest.raises(Failed):
        Storages(tmp_path / "root", "").of(KEY)


def test_a_removed_source_that_is_created_again_is_served(storages: Storages) -> None:
    for key in (KEY, OTHER):
        put(storages, key=key)
        storages.forget(key)
    storages.close()
    for key in (KEY, OTHER):
        assert storages.find(put(storages, key=key)) is not None


def test_a_full_volume_costs_the_history_of_all_sources_and_the_latest_archive_of_none(
    tmp_path: Path,
) -> None:
    storages = Storages(tmp_path, "http://x")
    keys = [ObjectKey("FlagSource", "shop", name) for name in ("one", "two")]
    latest = {}
    for key in keys:
        for content in (b"1", b"2"):
            latest[key] = storages.of(key).put(content, revision=f"main@sha1:{content!r}", metadata={})
    damaged = tmp_path / "flagsource/shop/one/x.tar.gz.damaged"
    damaged.write_bytes(b"")
    assert storages.drop_history()
    for key in keys:
        files = {path.name for path in (tmp_path / "flagsource" / key.namespace / key.name).iterdir()}
        assert files == {"index.json", latest[key].path}
        assert storages.of(key).latest() == latest[key]
    assert not storages.drop_history()
    storages.close()
    assert Storages(tmp_path, "http://x").of(keys[0]).latest() == latest[keys[0]]
