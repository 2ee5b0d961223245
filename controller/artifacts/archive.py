"""A folder as one tar.gz: the same files always give the same bytes, and reading it is bounded.

What a source lists and does not deliver, such as symlinks and files that are too large, is noted in the
archive itself, so that its readers know that files are missing, after a restart too.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import stat
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

_CHUNK: Final = 64 * 1024
_LEVEL: Final = 6
_FREE_OF_RATIO: Final = 4 * 1024 * 1024
"""Bytes below which a high ratio does no harm; small repetitive files compress very well."""
PLAIN_TYPES: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE})
_MAX_EXTENSION: Final = 64 * 1024
"""Bytes of a long name or of pax records, which tarfile reads whole and parses slowly."""
SKIPPED_FILE: Final = ".flagstaff-skipped.json"
"""A file of this name is no part of a source's own content."""
TOO_LARGE: Final = "too large"
"""The beginning of the reason for skipping a file that exceeds the limit for one file."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How large an archive may be before it is refused."""

    compressed_bytes: int = 64 * 1024 * 1024
    bytes: int = 256 * 1024 * 1024
    """Most bytes of the tar within: contents and headers."""
    files: int = 50_000
    """Most files and folders."""
    ratio: int = 200
    """Most bytes per compressed byte."""
    depth: int = 32
    """Most parts of one name: folders and file."""
    name_length: int = 1024
    """Most UTF-8 bytes of one name."""


DEFAULT_LIMITS: Final = ArchiveLimits()


class ArchiveRefused(Stalled):
    """An archive, or a folder to be one, that is too large or holds what it must not; names the member."""

    def __init__(self, message: str) -> None:
        super().__init__("ArchiveRefused", message)


def pack(
    directory: Path, limits: ArchiveLimits = DEFAULT_LIMITS, ignored: Callable[[str], bool] = lambda _: False
) -> bytes:
    """The files below `directory` but those `ignored`. Raises ArchiveRefused as `unpack` would; OSError."""
    archive = io.BytesIO()
    total = 0
    with (
        gzip.GzipFile("", "wb", _LEVEL, archive, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in _names(directory, limits, ignored):
            file = directory / name
            total += file.stat().st_size
            if total > limits.bytes:
                raise ArchiveRefused(f"{name!r}: the files are over {limits.bytes} bytes in all")
            content = file.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    _plain(archive.getvalue(), limits).drain()
    return archive.getvalue()


def _names(directory: Path, limits: ArchiveLimits, ignored: Callable[[str], bool]) -> list[str]:
    names: list[str] = []
    for folder, folders, files in os.walk(directory, onerror=_raise):
        below = os.path.relpath(folder, directory)
        for entry in (*folders, *files):
            name = entry if below == os.curdir else f"{below}/{entry}"
            if ignored(name):
                continue
            _check_name(name, limits)
            mode = os.lstat(os.path.join(folder, entry)).st_mode
            if stat.S_ISREG(mode):
                names.append(name)
            elif not stat.S_ISDIR(mode):
                raise ArchiveRefused(
                    f"{name!r}: it is neither a file nor a folder, and only those are archived"
                )
            if len(names) > limits.files:
                raise ArchiveRefused(f"{name!r}: more than {limits.files} files")
    return sorted(names)


def _raise(error: OSError) -> None:
    raise error


def unpack(archive: bytes, limits: ArchiveLimits = DEFAULT_LIMITS) -> dict[str, bytes]:
    """The files of a tar.gz by name, with `/` between folders; bounded. Raises ArchiveRefused."""
    plain = _plain(archive, limits)
    try:
        with tarfile.open(fileobj=plain, mode="r|", tarinfo=SoundMember) as tar:
            files = _members(tar, limits)
        plain.drain()
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise ArchiveRefused(f"the archive is damaged: {error}") from error
    return files


def _members(tar: tarfile.TarFile, limits: ArchiveLimits) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    folders: set[str] = set()
    for number, member in enumerate(tar, start=1):
        if number > limits.files:
            raise ArchiveRefused(f"{member.name!r}: more than {limits.files} files and folders")
        name = _check_member(member, limits)
        if name in files or (name in folders and not member.isdir()):
            raise ArchiveRefused(f"{name!r}: the archive contains this name twice")
        parts = name.split("/")
        above = {"/".join(parts[:length]) for length in range(1, len(parts))}
        if clash := above & files.keys():
            raise ArchiveRefused(f"{clash.pop()!r}: is both a file and a folder")
        folders |= above
        if member.isdir():
            folders.add(name)
            continue
        stream = tar.extractfile(member)
        files[name] = stream.read() if stream is not None else b""
    return files


def _check_member(member: tarfile.TarInfo, limits: ArchiveLimits) -> str:
    name = member.name.removeprefix("./").rstrip("/")
    if member.issparse() or member.type not in PLAIN_TYPES:
        kind = "a link" if member.islnk() or member.issym() else "neither a file nor a folder"
        raise ArchiveRefused(f"{member.name!r}: is {kind}")
    if member.size < 0 or member.size > limits.bytes:
        raise ArchiveRefused(f"{member.name!r}: is over {limits.bytes} bytes")
    if not (member.isdir() and name in {"", "."}):
        _check_name(name, limits)
    return name


def _check_name(name: str, limits: ArchiveLimits) -> None:
    try:
        length = len(name.encode())
    except UnicodeEncodeError as error:
        raise ArchiveRefused(f"{name!r}: the name is not UTF-8") from error
    parts = name.split("/")
    if length > limits.name_length:
        raise ArchiveRefused(f"{name[:80]!r}…: the name is over {limits.name_length} bytes")
    if len(parts) > limits.depth:
        raise ArchiveRefused(f"{name!r}: is over {limits.depth} folders deep")
    if name.startswith("/") or "\0" in name or not {"", ".", ".."}.isdisjoint(parts):
        raise ArchiveRefused(f"{name!r}: the name leaves the archive, or is not a plain path")


def _plain(archive: bytes, limits: ArchiveLimits) -> Decompressed:
    if len(archive) > limits.compressed_bytes:
        raise ArchiveRefused(f"the archive is over {limits.compressed_bytes} bytes")
    return Decompressed(io.BytesIO(archive), limits)


class SoundMember(tarfile.TarInfo):
    """tarfile takes a broken header after the first member for the archive's end; here it is an error."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The header in one block. Raises HeaderError for the zeros at the end, else ArchiveRefused."""
        try:
            member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and not any(buf):
                raise
            raise ArchiveRefused(f"the archive is damaged: {error}") from error
        if member.type not in PLAIN_TYPES and member.size > _MAX_EXTENSION:
            raise ArchiveRefused(f"{member.name!r}: has a header over {_MAX_EXTENSION} bytes")
        return member


class Decompressed(io.RawIOBase):
    """The decompressed archive as a stream that refuses to give more than the limits allow."""

    def __init__(self, archive: BinaryIO, limits: ArchiveLimits) -> None:
        """`archive` is read from where it stands, and no longer than `limits` allow."""
        super().__init__()
        self._limits = limits
        self._compressed = archive
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._given = 0

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes (a chunk if negative), none at the end. Raises ArchiveRefused."""
        size = size if 0 < size < _CHUNK else _CHUNK
        while not self._zlib.eof:
            pending = self._zlib.unconsumed_tail or self._compressed.read(_CHUNK)
            try:
                given = self._zlib.decompress(pending, size)
            except zlib.error as error:
                raise ArchiveRefused(f"the archive is damaged: {error}") from error
            if given:
                self._count(len(given))
                return given
            if not pending and not self._zlib.eof:
                raise ArchiveRefused("the archive is damaged: it ends too early")
        if self._zlib.unused_data or self._compressed.read(1):
            raise ArchiveRefused("the archive is damaged: something follows its end")
        return b""

    def _count(self, given: int) -> None:
        self._given += given
        if self._given > self._limits.bytes:
            raise ArchiveRefused(f"the archive unpacks to over {self._limits.bytes} bytes")
        taken = self._compressed.tell() - len(self._zlib.unconsumed_tail)
        if self._given > max(_FREE_OF_RATIO, taken * self._limits.ratio):
            raise ArchiveRefused(f"the archive grows over {self._limits.ratio} times when unpacked")

    def drain(self) -> None:
        """Read to the end, where gzip's checksum is. Raises ArchiveRefused."""
        while self.read():
            continue


def too_large(name: str, size: int, most: int) -> str:
    """The entry of a file of `size` bytes, where one may have `most`."""
    return f"{name}: {TOO_LARGE}, {size} bytes of {most} that one file may have"


def write_skipped(folder: Path, skipped: Sequence[str]) -> None:
    """Note `skipped`, each `name: reason`, in a folder that is to be an archive. Raises OSError."""
    path = folder / SKIPPED_FILE
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if skipped:
        path.write_text(json.dumps(sorted(skipped)), encoding="utf-8")


def take_skipped(files: dict[str, bytes]) -> tuple[str, ...]:
    """Remove the note from an archive's files and return what it lists; nothing where there is none."""
    content = files.pop(SKIPPED_FILE, b"[]")
    try:
        listed = json.loads(content)
    except (ValueError, RecursionError):
        return ()
    return tuple(line for line in listed if isinstance(line, str)) if isinstance(listed, list) else ()
