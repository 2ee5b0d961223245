"""A folder as an artifact, as `flux push artifact` makes it: the same files and annotations are always the
same bytes.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.artifacts.archive import DEFAULT_LIMITS, pack
from controller.sources.files.ignore import matcher
from controller.sources.oci.manifest import FLUX_CONFIG, FLUX_CONTENT
from controller.sources.oci.registry import MANIFEST, sha256

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOURCE_IGNORE: Final = ".sourceignore"
_NEVER: Final = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Package:
    """An artifact that is to be pushed."""

    config: bytes
    layer: bytes
    manifest: bytes

    @property
    def digest(self) -> str:
        """The digest of the manifest, which is the artifact's own."""
        return sha256(self.manifest)


def package(folder: Path, annotations: Mapping[str, str]) -> Package:
    """The files below `folder`, without those that its `.sourceignore` names, or Flux's defaults where it has
    none. Raises Setback, OSError. Blocks.
    """
    patterns = folder / SOURCE_IGNORE
    text = patterns.read_text(encoding="utf-8", errors="replace") if patterns.is_file() else None
    layer = pack(folder, DEFAULT_LIMITS, matcher(text, SOURCE_IGNORE))
    config = configuration([sha256(gzip.decompress(layer))])
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(FLUX_CONFIG, config),
        "layers": [described(FLUX_CONTENT, layer)],
        "annotations": {key: annotations[key] for key in sorted(annotations) if annotations[key]},
    }
    return Package(config, layer, _json(manifest))


def configuration(contents: list[str]) -> bytes:
    """What tools for images expect: a configuration without a program to run. `contents`: digests of the
    layers, unpacked.
    """
    rootfs = {"type": "layers", "diff_ids": contents}
    return _json({
        "architecture": "", "created": _NEVER, "history": [{"created": _NEVER}] * len(contents), "os": "",
        "rootfs": rootfs, "config": {},
    })  # fmt: skip


def described(media_type: str, content: bytes) -> dict[str, str | int]:
    """A blob as a manifest names it."""
    return {"mediaType": media_type, "size": len(content), "digest": sha256(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
