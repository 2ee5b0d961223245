"""A folder as an artifact, as `flux push artifact` makes it, and its signature as cosign 2 makes it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.artifacts.archive import DEFAULT_LIMITS, pack
from controller.sources.backend import NotBelievedError
from controller.sources.cosign import PAYLOAD, SIGNATURE, payload_of, verify_payload
from controller.sources.oci_manifest import FLUX_CONFIG, FLUX_CONTENT, ImageLayer, layers_of
from controller.sources.oci_registry import MANIFEST, Registry, sha256
from controller.sources.source_files import matcher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.sources.cosign_keys import CosignKey
    from evaluator.host.signatures import PrivateKey

SOURCE_IGNORE: Final = ".sourceignore"
_NEVER: Final = "0001-01-01T00:00:00Z"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"


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
    """The files below `folder` that its `.sourceignore` lets through. Raises Setback, OSError. Blocks."""
    patterns = folder / SOURCE_IGNORE
    text = patterns.read_text(encoding="utf-8", errors="replace") if patterns.is_file() else None
    layer = pack(folder, DEFAULT_LIMITS, matcher(text, SOURCE_IGNORE))
    config = configuration([sha256(gzip.decompress(layer))])
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(FLUX_CONFIG, config),
        "layers": [descriptor(FLUX_CONTENT, layer)],
        "annotations": {key: annotations[key] for key in sorted(annotations) if annotations[key]},
    }
    return Package(config, layer, _json(manifest))


def configuration(contents: list[str]) -> bytes:
    """An image's configuration without a program; `contents`: digests of the unpacked layers."""
    rootfs = {"type": "layers", "diff_ids": contents}
    return _json({
        "architecture": "", "created": _NEVER, "history": [{"created": _NEVER}] * len(contents), "os": "",
        "rootfs": rootfs, "config": {},
    })  # fmt: skip


def descriptor(media_type: str, content: bytes) -> dict[str, str | int]:
    """A blob as a manifest names it."""
    return {"mediaType": media_type, "size": len(content), "digest": sha256(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


async def sign(registry: Registry, digest: str, key: PrivateKey) -> None:
    """Attach a signature of the manifest `digest`, unless the key's is there. Raises Setback."""
    from controller.sources.cosign_keys import CosignKey, signature_of  # noqa: PLC0415 - for signatures alone

    payload = payload_of(digest, str(registry.address).removeprefix("oci://"))
    tag = f"{digest.replace(':', '-')}.sig"
    layers = layers_of(await registry.find_manifest(tag))
    ours = CosignKey("", key.public_key())
    if any(_is_ours(layer, payload, digest, ours) for layer in layers):
        return
    made = _package(payload, signature_of(payload, key), layers)
    for blob in (made.config, made.layer):
        await registry.push_blob(blob)
    await registry.push_manifest(tag, made.manifest)


def _is_ours(layer: dict[str, Any], payload: bytes, digest: str, key: CosignKey) -> bool:
    attached = ImageLayer.of(layer)
    try:
        made = attached.annotations.get(SIGNATURE, "")
        verify_payload(payload, made, digest, [key])
    except NotBelievedError:
        return False
    return attached.digest == sha256(payload)


def _package(payload: bytes, signature: str, others: list[dict[str, Any]]) -> Package:
    config = configuration([str(layer.get("digest")) for layer in others] + [sha256(payload)])
    layer = {**descriptor(PAYLOAD, payload), "annotations": {SIGNATURE: signature}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(_CONFIG, config),
        "layers": [*others, layer],
    }
    return Package(config, payload, json.dumps(manifest, separators=(",", ":")).encode())
