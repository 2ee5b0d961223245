"""A layer's files, written below one folder: bounded, and never outside of it. All of it blocks."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.artifacts.archive import (
    DEFAULT_LIMITS,
    PLAIN_TYPES,
    ArchiveLimits,
    ArchiveRefused,
    Decompressed,
    SoundMember,
    too_large,
)
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.files.quarantine import create_file

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from controller.sources.backend import TreeLimits

_GZIP: Final = b"\x1f\x8b"
_LONGEST_NAME: Final = 255
"""Bytes that file systems take."""


def extract(archive: BinaryIO, into: Path, limits: TreeLimits) -> tuple[str, ...]:
    """Write the files of a tar.gz below `into`; what is left out. Raises ArchiveRefused, Stalled, OSError."""
    if archive.read(len(_GZIP)) != _GZIP:
        raise ArchiveRefused(
            "the layer is no tar.gz; push it as one (flagstaff push), or have a FlagSource choose another "
            "layer or copy it as it is (spec.oci.layerSelector)"
        )
    archive.seek(0)
    plain = Decompressed(archive, ArchiveLimits(bytes=limits.total_bytes))
    writing = _Writing(into, limits)
    try:
        with tarfile.open(fileobj=plain, mode="r|", tarinfo=SoundMember, errors="surrogateescape") as tar:
            for member in tar:
                writing.member(tar, member)
        plain.drain()
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise ArchiveRefused(f"the layer is damaged: {error}") from error
    return tuple(writing.skipped)


def copy(archive: BinaryIO, title: str, size: int, into: Path, limits: TreeLimits) -> tuple[str, ...]:
    """Write a layer below `into` as the one file that it is, called `title`; what was left out."""
    if not title:
        message = "the layer has no name: to copy it, it needs the annotation org.opencontainers.image.title"
        raise Stalled("InvalidArtifact", message)
    writing = _Writing(into, limits)
    parts = writing.check_name(title)
    if size > limits.file_bytes:
        return (too_large(title, size, limits.file_bytes),)
    writing.write(parts, archive.read())
    return ()


@dataclass(slots=True)
class _Writing:
    into: Path
    limits: TreeLimits
    skipped: list[str] = field(default_factory=list)
    entries: int = 0

    def member(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self.entries += 1
        if self.entries > self.limits.entries:
            raise ArchiveRefused(f"the layer has more than {self.limits.entries} files and folders")
        name = member.name.removeprefix("./").rstrip("/")
        if name in {"", "."} and member.isdir():
            return
        shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        if shown != name:
            self.skipped.append(f"{shown}: its name is not UTF-8")
            return
        parts = self.check_name(name)
        if member.issym() or member.islnk():
            self.skipped.append(f"{name}: {'symlink' if member.issym() else 'hard link'}, not followed")
        elif member.issparse() or member.type not in PLAIN_TYPES:
            self.skipped.append(f"{name}: neither a file nor a folder")
        elif member.isdir():
            # Folders are made for the files in them: an artifact holds no others.
            pass
        elif member.size > self.limits.file_bytes:
            self.skipped.append(too_large(name, member.size, self.limits.file_bytes))
        else:
            stream = tar.extractfile(member)
            self.write(parts, stream.read() if stream is not None else b"")

    def check_name(self, name: str) -> list[str]:
        parts = name.split("/")
        unsafe = name.startswith("/") or "\0" in name or not {"", ".", ".."}.isdisjoint(parts)
        if unsafe or max(len(part.encode()) for part in parts) > _LONGEST_NAME:
            raise Stalled("UnsafePath", f"{name[:200]!r}: a file cannot have this name")
        if len(name.encode()) > DEFAULT_LIMITS.name_length:
            raise ArchiveRefused(f"{name[:80]!r}…: is over {DEFAULT_LIMITS.name_length} bytes long")
        if len(parts) > self.limits.depth:
            raise ArchiveRefused(f"{name[:200]!r}: is over {self.limits.depth} folders deep")
        return parts

    def write(self, parts: list[str], content: bytes) -> None:
        """Nothing below the folder but what we wrote: no link can be followed."""
        try:
            self.into.joinpath(*parts[:-1]).mkdir(parents=True, exist_ok=True)
            file = create_file(self.into.joinpath(*parts))
        except (FileExistsError, NotADirectoryError) as error:
            message = f"{'/'.join(parts)!r}: the layer contains this name twice, or as a file and as a folder"
            raise ArchiveRefused(message) from error
        with file:
            file.write(content)
