"""Workloads as manifests have them: where each keeps its pods' template. Pure."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from controller.delivery.standing_orders import ORDERS_LABEL, asks_for_order
from controller.pods.injection.pod_injection import inject
from controller.pods.settings.installation import Refused
from controller.pods.settings.pod_orders import ALONE, MARKED, Surroundings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.pods.settings.installation import Known, Options

_TEMPLATE: Final = ("spec", "template")
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def inject_manifest(manifest: Any, namespace: str, options: Options, known: Known) -> Any:
    """A manifest with its pods' template injected, or as it is where it has none or asks for nothing.

    `namespace` is that of manifests that name none. Raises Refused, which names the object.
    """
    if not isinstance(manifest, dict):
        return manifest
    if manifest.get("kind") == "List" and isinstance(manifest.get("items"), list):
        return {
            **manifest,
            "items": [inject_manifest(item, namespace, options, known) for item in manifest["items"]],
        }
    path = TEMPLATES.get(str(manifest.get("kind")))
    if path is None:
        return manifest
    meta = manifest.get("metadata")
    own = meta if isinstance(meta, dict) else {}
    where = own.get("namespace") or namespace
    try:
        return _with_template(manifest, path, str(where), options, known)
    except Refused as refusal:
        raise Refused(f"{manifest['kind']} {where}/{own.get('name', '')}: {refusal}") from None


def _with_template(
    manifest: Mapping[str, Any], path: tuple[str, ...], namespace: str, options: Options, known: Known
) -> Any:
    made: Any = copy.deepcopy(dict(manifest))
    around = _surroundings(made) if path else ALONE
    holder, template = None, made
    for step in path:
        holder, template = template, template.get(step)
        if not isinstance(template, dict):
            raise Refused(f"{'.'.join(path)}: is no object; write a pod's template")
    changes = inject(template, namespace, options, known, around)
    if changes is None:
        return manifest
    if holder is None:
        return changes.after
    holder[path[-1]] = changes.after
    return made


def _surroundings(workload: dict[str, Any]) -> Surroundings:
    """What its pods' orders depend on. A workload with an order gets the label by which proxies find it."""
    meta = workload.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    asks = isinstance(annotations, dict) and asks_for_order(annotations)
    if asks and isinstance(meta, dict):
        meta["labels"] = {**(meta.get("labels") or {}), ORDERS_LABEL: MARKED}
    name = str(meta.get("name", "")) if isinstance(meta, dict) else ""
    return Surroundings({} if asks else None, (str(workload["kind"]), name) if name else ("", ""))
