"""The manifest of an OCI image: the layer that holds the files, and its metadata. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from controller.api.objects.provenance import AUTHOR, COMMITTED_AT, SUBJECT
from controller.api.parsing.oci_address import DIGEST
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.plain_text import json_object, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

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
class Layer:
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

    layer: Layer
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def metadata(self) -> dict[str, str]:
        """Return the entries for `status.artifact.metadata`."""
        metadata = {key: self.annotations.get(key, "") for key in _KEPT}
        metadata[AUTHOR] = self.annotations.get(AUTHORS, "")
        metadata[COMMITTED_AT] = _moment(self.annotations.get(CREATED, ""))
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


def _choose_layer(layers: list[dict[str, Any]], media_type: str | None) -> Layer:
    chosen = next((layer for layer in map(Layer.of, layers) if media_type in {None, layer.media_type}), None)
    if chosen is None:
        types = ", ".join(one_line(layer.media_type, 100) for layer in map(Layer.of, layers[:_LISTED]))
        message = f"no layer has the media type {media_type!r} of layerSelector; its layers have {types}"
        raise _invalid(message)
    if not chosen.digest:
        raise _invalid("its layer has no sha256 digest")
    if chosen.size < 0:
        raise _invalid("its layer has no size")
    return chosen


def _moment(text: str) -> str:
    """Return the time in UTC; empty for an invalid one."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return ""


def _invalid(why: str) -> Stalled:
    return Stalled("InvalidArtifact", why)
