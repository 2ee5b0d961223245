"""Workloads with flags as manifests have them, marked as admission marks them. Pure."""

from __future__ import annotations

from typing import Any

from controller.pods.direct_sets.carried_flags import KINDS, carried_flags
from controller.pods.direct_sets.direct_flags import MOST_APPLIED, read_flags
from controller.pods.direct_sets.workload_marks import Applied, mark, record_in, remark_on
from controller.pods.settings.installation import Refused


def mark_manifest(manifest: Any) -> Any:
    """A manifest whose pods ask for an evaluator of the flags that it carries, or as it is where it carries
    none. Who will apply it is not known. Raises Refused, which names the object.
    """
    if not isinstance(manifest, dict):
        return manifest
    if manifest.get("kind") == "List" and isinstance(manifest.get("items"), list):
        return {**manifest, "items": [mark_manifest(item) for item in manifest["items"]]}
    if manifest.get("kind") not in KINDS:
        return manifest
    try:
        carried = carried_flags(manifest)
        if carried is None:
            return manifest
        read_flags(carried.text, carried.where, MOST_APPLIED)
    except Refused as refusal:
        meta = manifest.get("metadata")
        name = meta.get("name", "") if isinstance(meta, dict) else ""
        raise Refused(f"{manifest['kind']} {name}: {refusal}") from None
    if record_in(manifest):
        return manifest
    return mark(manifest, None, carried, Applied("", ""), remark_on(carried)).after
