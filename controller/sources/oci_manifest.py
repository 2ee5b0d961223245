"""The manifest of an OCI image, and the files of its layer, written below one folder."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from controller.api.addresses import DIGEST
from controller.api.meta import AUTHOR, COMMITTED_AT, SUBJECT
from controller.artifacts.archive import (
    DEFAULT_LIMITS,
    PLAIN_TYPES,
    ArchiveLimits,
    ArchiveRefused,
    Decompressed,
    SoundMember,
    too_large,
)
from controller.runtime.plain_text import json_object, one_line
from controller.runtime.setbacks import Stalled
from controller.sources.source_files import create_file
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import BinaryIO

    from controller.sources.backend import TreeLimits


_IMAGE: Final = "org.opencontainers.image"
TITLE: Final = f"{_IMAGE}.title"
"""The name of a file that is a layer, as `oras push` writes it."""
SOURCE: Final = f"{_IMAGE}.source"
REVISION: Final = f"{_IMAGE}.revision"
CREATED: Final = f"{_IMAGE}.created"
AUTHORS: Final = f"{_IMAGE}.authors"
FLUX_CONFIG: Final = "application/vnd.cncf.flux.config.v1+json"
FLUX_CONTENT: Final = "application/vnd.cncf.flux.content.v1.tar+gzip"

_KEPT: Final = (SOURCE, REVISION, SUBJECT)
"""Annotations that keep their names."""
_LONGEST: Final = 500
_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """A layer as a manifest lists it; what has the wrong form there is empty here."""

    media_type: str
    digest: str
    """`sha256:<64 hexadecimal digits>`."""
    size: int
    """Bytes; -1 where the manifest gives none."""
    annotations: Mapping[str, str]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry of `layers_of`."""
        digest, size = str(entry.get("digest")), entry.get("size")
        return cls(
            str(entry.get("mediaType", "")),
            digest if DIGEST.fullmatch(digest) else "",
            size if isinstance(size, int) and size >= 0 else -1,
            _texts(entry.get("annotations")),
        )


@dataclass(frozen=True, slots=True)
class OciManifest:
    """What an artifact consists of."""

    layer: ImageLayer
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def metadata(self) -> dict[str, str]:
        """Return the entries for `status.artifact.metadata`."""
        metadata = {key: self.annotations.get(key, "") for key in _KEPT}
        metadata[AUTHOR] = self.annotations.get(AUTHORS, "")
        created = parse_time(self.annotations.get(CREATED))
        metadata[COMMITTED_AT] = "" if created is None else created.isoformat()
        return {key: one_line(text, _LONGEST) for key, text in metadata.items() if text}

    @property
    def summary(self) -> str:
        """Return its origin in words: `artifact of main@sha1:… of https://…`; empty if unknown."""
        origin = (self.annotations.get(REVISION, ""), self.annotations.get(SOURCE, ""))
        words = " of ".join(one_line(text, _LONGEST) for text in origin if text)
        return f"artifact of {words}" if words else ""


def chosen_manifest(content: bytes) -> str | None:
    """The digest that an index has for linux/amd64 or no platform; None: no index. Raises Stalled."""
    listed = _object(content).get("manifests")
    if not isinstance(listed, list):
        return None
    for entry in listed:
        if isinstance(entry, dict) and _is_chosen(entry.get("platform")):
            digest = entry.get("digest")
            if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
                raise _invalid("its index names a manifest without a sha256 digest")
            return digest
    raise _invalid("it is an index of images, none of which is for linux/amd64 or for no platform")


def _is_chosen(platform: object) -> bool:
    if not isinstance(platform, dict):
        return True
    return (platform.get("os"), platform.get("architecture")) == ("linux", "amd64")


def read_manifest(content: bytes, media_type: str | None = None) -> OciManifest:
    """The manifest, with its first layer, or the first of `media_type`. Raises Stalled (InvalidArtifact)."""
    document = _object(content)
    if "manifests" in document:
        raise _invalid("it is an index within an index, which is not read")
    layers = _entries(document, "layers")
    if not layers:
        raise _invalid("its manifest has no layers")
    return OciManifest(_choose_layer(layers, media_type), _texts(document.get("annotations")))


def _texts(annotations: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in annotations.items()} if isinstance(annotations, dict) else {}


def layers_of(content: bytes) -> list[dict[str, Any]]:
    """The layers that a manifest lists, as far as it can be read."""
    return _entries(json_object(content) or {}, "layers")


def _entries(manifest: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    listed = manifest.get(name)
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _object(content: bytes) -> dict[str, Any]:
    document = json_object(content)
    if document is None:
        raise _invalid("its manifest is not a JSON object")
    return document


def _choose_layer(layers: list[dict[str, Any]], media_type: str | None) -> ImageLayer:
    chosen = next(
        (layer for layer in map(ImageLayer.of, layers) if media_type in {None, layer.media_type}), None
    )
    if chosen is None:
        types = ", ".join(one_line(layer.media_type, 100) for layer in map(ImageLayer.of, layers[:_LISTED]))
        message = f"no layer has the media type {media_type!r} of layerSelector; its layers have {types}"
        raise _invalid(message)
    if not chosen.digest:
        raise _invalid("its layer has no sha256 digest")
    if chosen.size < 0:
        raise _invalid("its layer has no size")
    return chosen


def _invalid(why: str) -> Stalled:
    return Stalled("InvalidArtifact", why)


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
