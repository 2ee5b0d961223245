from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.artifacts.archive import ArchiveLimits, ArchiveRefused, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)
NAMES = st.lists(PARTS.filter(lambda part: part not in {".", ".."}), min_size=1, max_size=3).map("/".join)


def grow(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    described = tarfile.TarInfo(name)
    described.size = len(content)
    for field, value in fields.items():
        setattr(described, field, value)
    return described, content


def archive_of(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", errors="surrogateescape") as tar:
        for described, content in members:
            tar.addfile(described, io.BytesIO(content))
    return gzip.compress(plain.getvalue())


def test_the_same_files_give_the_same_bytes_whatever_their_order_times_and_modes(tmp_path: Path) -> None:
    files = {"b.json": b"{}", "a/c.yaml": b"flags: {}", "a.json": b"1"}
    one = grow(tmp_path / "one", files)
    other = grow(tmp_path / "other", dict(reversed(files.items())))
    os.utime(other / "b.json", (1, 1))
    (other / "a.json").chmod(0o700)
    assert pack(one) == pack(other)


def test_other_content_gives_other_bytes(tmp_path: Path) -> None:
    one = grow(tmp_path / "one", {"a.json": b"1"})
    other = grow(tmp_path / "other", {"a.json": b"2"})
    assert pack(one) != pack(other)


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    files = {"flags/base/a.json": b"{}", "ünïcode.yaml": b"", "n" * 200 + ".json": b"\0" * 70_000}
    assert unpack(pack(grow(tmp_path, files))) == files


def test_an_empty_folder_is_an_empty_archive(tmp_path: Path) -> None:
    assert unpack(pack(tmp_path)) == {}


@settings(max_examples=100)
@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=8))
def test_files_of_any_name_and_content_survive(files: dict[str, bytes]) -> None:
    folders = {name[:at] for name in files for at, sign in enumerate(name) if sign == "/"}
    plain = {name: content for name, content in files.items() if name not in folders}
    assert unpack(archive_of(member(name, content) for name, content in plain.items())) == plain


@settings(max_examples=300)
@given(st.binary(max_size=600), st.booleans())
def test_bytes_of_any_kind_are_refused_or_read_never_worse(noise: bytes, wrapped: bool) -> None:
    files: dict[str, bytes] = {}
    with contextlib.suppress(ArchiveRefused):
        files = unpack(gzip.compress(noise) if wrapped else noise)
    assert sum(map(len, files.values())) <= len(noise)


@settings(max_examples=200)
@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_one_flipped_byte_in_a_header_never_does_worse_than_a_refusal(at: int, flip: int) -> None:
    plain = bytearray(gzip.decompress(archive_of([member("a.json", b"1"), member("b.json", b"2")])))
    plain[at % len(plain)] ^= flip
    try:
        files = unpack(gzip.compress(plain))
    except ArchiveRefused:
        return
    assert len(files) == 2


@pytest.mark.parametrize(
    ("described", "said"),
    [
        (member("../up.json", b"1"), "'../up.json'"),
        (member("a/../../up.json", b"1"), "'a/../../up.json'"),
        (member("/etc/flags.json", b"1"), "'/etc/flags.json'"),
        (member("a//b.json", b"1"), "'a//b.json'"),
        (member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "'link': is a link"),
        (member("hard", type=tarfile.LNKTYPE, linkname="a.json"), "'hard': is a link"),
        (member("dev", type=tarfile.CHRTYPE), "'dev': is neither"),
        (member("block", type=tarfile.BLKTYPE), "'block': is neither"),
        (member("pipe", type=tarfile.FIFOTYPE), "'pipe': is neither"),
        (member("odd", type=b"Z"), "'odd': is neither"),
        (member("\udcff.json", b"1"), "not UTF-8"),
        (member("x" * 1025, b"1"), "over 1024 bytes"),
        (member("/".join("d" * 33), b"1"), "folders deep"),
        (member("a.json", b"2"), "'a.json': the archive contains this name twice"),
        (member("./a.json", b"2"), "'a.json': the archive contains this name twice"),
        (member("a.json/b", b"2"), "'a.json': is both"),
        (member("a.json", type=tarfile.DIRTYPE), "'a.json': the archive contains this name twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_member_that_could_do_harm_is_refused_by_name(
    described: tuple[tarfile.TarInfo, bytes], said: str
) -> None:
    with pytest.raises(ArchiveRefused) as refusal:
        unpack(archive_of([member("a.json", b"1"), described]))
    assert said in refusal.value.message


def test_folders_and_a_leading_dot_are_plain(tmp_path: Path) -> None:
    folder = member("./", type=tarfile.DIRTYPE)
    inner = member("./flags/", type=tarfile.DIRTYPE)
    assert unpack(archive_of([folder, inner, member("./flags/a.json", b"1")])) == {"flags/a.json": b"1"}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (ArchiveLimits(compressed_bytes=10), "the archive is over 10 bytes"),
        (ArchiveLimits(bytes=20_000), "over 20000 bytes"),
        (ArchiveLimits(files=2), "more than 2 files"),
        (ArchiveLimits(depth=1), "'c/d.json'"),
        (ArchiveLimits(name_length=7), "'c/d.json'"),
    ],
    ids=["compressed", "bytes", "files", "depth", "name"],
)
def test_an_archive_over_a_limit_is_refused(limits: ArchiveLimits, said: str) -> None:
    members = [member(name, b"x" * 9000) for name in ("a.json", "b.json", "c/d.json")]
    with pytest.raises(ArchiveRefused) as refusal:
        unpack(archive_of(members), limits)
    assert said in refusal.value.message


def test_a_bomb_is_stopped_long_before_it_is_in_memory() -> None:
    bomb = gzip.compress(bytes(256 * 1024 * 1024 - 1), compresslevel=1)
    bomb = archive_of([member("zeros", bytes(64 * 1024 * 1024))]) + bomb
    with pytest.raises(ArchiveRefused, match="grows over 200 times"):
        unpack(bomb)


def test_a_long_header_is_refused_before_it_is_parsed() -> None:
    described = member("a.json", b"1", pax_headers={"comment": "x" * 100_000})
    with pytest.raises(ArchiveRefused, match="has a header over"):
        unpack(archive_of([described]))


@pytest.mark.parametrize("cut", [0, 1, 20, -1, -9])
def test_a_cut_archive_is_refused(cut: int) -> None:
    whole = archive_of([member("a.json", os.urandom(3000)), member("b.json", b"2")])
    with pytest.raises(ArchiveRefused, match="damaged"):
        unpack(whole[:cut])


def test_a_broken_second_header_is_not_taken_for_the_end() -> None:
    plain = bytearray(gzip.decompress(archive_of([member("a", b"1"), member("b", b"2")])))
    plain[1024:1030] = b"broken"
    with pytest.raises(ArchiveRefused, match="damaged"):
        unpack(gzip.compress(plain))


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(ArchiveRefused, match="follows its end"):
        unpack(archive_of([member("a.json", b"1")]) + b"more")


def test_a_changed_content_is_found_by_the_checksum() -> None:
    whole = bytearray(archive_of([member("a.json", b"1")]))
    whole[-5] ^= 1
    with pytest.raises(ArchiveRefused, match="damaged"):
        unpack(bytes(whole))


def test_a_link_in_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    (grow(tmp_path, {"flags/a.json": b"1"}) / "flags" / "out").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveRefused, match="'flags/out'"):
        pack(tmp_path)


def test_a_linked_folder_is_refused_by_name(tmp_path: Path) -> None:
    (grow(tmp_path, {"flags/a.json": b"1"}) / "out").symlink_to("/etc")
    with pytest.raises(ArchiveRefused, match="'out'"):
        pack(tmp_path)


def test_a_name_that_is_not_utf8_is_refused_when_packing(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.json")).write_bytes(b"1")
    with pytest.raises(ArchiveRefused, match="not UTF-8"):
        pack(tmp_path)


def test_a_folder_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArchiveRefused, match=r"'huge.json'"):
        pack(tmp_path)


def test_what_would_not_unpack_is_not_packed(tmp_path: Path) -> None:
    grow(tmp_path, {"zeros.json": bytes(32 * 1024 * 1024)})
    with pytest.raises(ArchiveRefused, match="grows over"):
        pack(tmp_path)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (ArchiveLimits(files=2), "more than 2 files"),
        (ArchiveLimits(bytes=5), "over 5 bytes in all"),
        (ArchiveLimits(depth=1), "'b/c.json'"),
        (ArchiveLimits(compressed_bytes=10), "over 10 bytes"),
    ],
    ids=["files", "bytes", "depth", "compressed"],
)
def test_a_folder_over_a_limit_is_not_packed(tmp_path: Path, limits: ArchiveLimits, said: str) -> None:
    grow(tmp_path, {"a.json": b"111", "b/c.json": b"222", "d.json": b"333"})
    with pytest.raises(ArchiveRefused, match=said):
        pack(tmp_path, limits)


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_archive(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "missing")
