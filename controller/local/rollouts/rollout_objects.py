"""FlagRollouts, MetricTemplates and Secrets of a file, as objects beside the FlagSet of local mode. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import FLAG_ROLLOUT, METRIC_TEMPLATE, SECRET
from controller.local.stages.local_objects import NAME, NAMESPACE
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KINDS: Final = frozenset({FLAG_ROLLOUT.kind, METRIC_TEMPLATE.kind})
KINDS: Final = _KINDS | {SECRET.kind}
"""What a file may hold; other objects in it are ignored."""


def rollout_objects(manifests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The objects of a file: in the namespace of local mode, about its flag set. Raises Stalled for a file
    without a FlagRollout, and for FlagRollouts of several flag sets.
    """
    objects = [_local_object(manifest) for manifest in manifests if manifest["kind"] in _KINDS]
    rollouts = [manifest for manifest in objects if manifest["kind"] == FLAG_ROLLOUT.kind]
    if not rollouts:
        raise Stalled("InvalidSpec", "--rollout: there is no FlagRollout in the file")
    names = {rollout["spec"]["flagSetRef"]["name"] for rollout in rollouts}
    if len(names) > 1:
        sets = ", ".join(sorted(names))
        raise Stalled("InvalidSpec", f"--rollout: the file is about several flag sets ({sets}); leave one")
    for rollout in rollouts:
        rollout["spec"] = {**rollout["spec"], "flagSetRef": {"name": NAME}}
    return objects


def secrets_of(manifests: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, bytes]]:
    """The keys of each Secret in a file, by its name. Raises Stalled for what is no base64."""
    return {
        manifest["metadata"]["name"]: dict(_keys(manifest))
        for manifest in manifests
        if manifest["kind"] == SECRET.kind
    }


def _keys(secret: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    try:
        for key, text in (secret.get("data") or {}).items():
            yield key, base64.b64decode(str(text), validate=True)
    except binascii.Error:
        name = secret["metadata"]["name"]
        raise Stalled("InvalidSecret", f"--rollout: data of Secret {name} is no base64") from None
    for key, text in (secret.get("stringData") or {}).items():
        yield key, str(text).encode()


def _local_object(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a manifest in the namespace of local mode."""
    meta = manifest["metadata"]
    # The same uid in each process: what one wrote belongs to the object of the next.
    metadata = {
        "name": meta["name"],
        "namespace": NAMESPACE,
        "uid": f"{manifest['kind']}.{meta['name']}",
        "annotations": dict(meta.get("annotations") or {}),
    }
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": metadata,
        "spec": dict(manifest.get("spec") or {}),
    }
