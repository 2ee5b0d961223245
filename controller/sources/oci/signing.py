"""Signs a manifest as cosign 2 does with a key: a payload that names it, at a tag beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.sources.oci.answers import Gone
from controller.sources.oci.package import Package, configuration, described
from controller.sources.oci.registry import MANIFEST, sha256
from controller.sources.verification.cosign import PAYLOAD, SIGNATURE, CosignKey, payload_of, verify_payload
from controller.sources.verification.private_key import signature_of
from controller.sources.verification.signer import NotBelievedError

if TYPE_CHECKING:
    from controller.sources.oci.registry import Registry
    from controller.sources.verification.private_key import PrivateKey

_CONFIG: Final = "application/vnd.oci.image.config.v1+json"


async def sign(registry: Registry, digest: str, key: PrivateKey) -> None:
    """Attach a signature of the manifest `digest`, beside those that are there, unless the key's is. Raises
    Setback.
    """
    payload = payload_of(digest, str(registry.address).removeprefix("oci://"))
    tag = f"{digest.replace(':', '-')}.sig"
    layers = await _layers(registry, tag)
    if any(_is_ours(layer, payload, digest, key) for layer in layers):
        return
    made = _package(payload, signature_of(payload, key), layers)
    for blob in (made.config, made.layer):
        await registry.push_blob(blob)
    await registry.push_manifest(tag, made.manifest)


async def _layers(registry: Registry, tag: str) -> list[dict[str, Any]]:
    """Signatures that are there."""
    try:
        found = json.loads(await registry.manifest(tag))
    except (Gone, ValueError, RecursionError):
        return []
    layers = found.get("layers") if isinstance(found, dict) else None
    return [each for each in layers if isinstance(each, dict)] if isinstance(layers, list) else []


def _is_ours(layer: dict[str, Any], payload: bytes, digest: str, key: PrivateKey) -> bool:
    annotations = layer.get("annotations")
    made = annotations.get(SIGNATURE) if isinstance(annotations, dict) else None
    try:
        verify_payload(payload, str(made), digest, [CosignKey("", key.public_key())])
    except NotBelievedError:
        return False
    return layer.get("digest") == sha256(payload)


def _package(payload: bytes, signature: str, others: list[dict[str, Any]]) -> Package:
    config = configuration([str(each.get("digest")) for each in others] + [sha256(payload)])
    layer = {**described(PAYLOAD, payload), "annotations": {SIGNATURE: signature}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(_CONFIG, config),
        "layers": [*others, layer],
    }
    return Package(config, payload, json.dumps(manifest, separators=(",", ":")).encode())
