"""The objects that deliver a flag set: one FeatureFlagConfiguration, and shards where it is large. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset, flagshard
from controller.api.flagreceipt import OBSERVED_AT
from controller.api.objects.meta import API_VERSION, OPENFEATURE_VERSION, ObjectKey
from controller.api.openfeature import featureflagconfiguration
from controller.api.remote_provider import FIELD
from controller.delivery.sharding import LARGEST, TooLargeError, parts, shard_of
from evaluator.flags.canonical import canonical
from evaluator.flags.model import AUTHOR_KEY, COMMITTED_AT_KEY, DIGEST_KEY, REVISION_KEY, VERIFIED_BY_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.api.objects.artifact_status import ArtifactStatus
    from controller.api.objects.meta import Resource
    from evaluator.flags.model import FlagSet

MOST_SHARDS: Final = 256
"""Most shards of one set: as many as an index lists."""
ANNOTATIONS: Final = (REVISION_KEY, DIGEST_KEY, AUTHOR_KEY, COMMITTED_AT_KEY, VERIFIED_BY_KEY)


@dataclass(frozen=True, slots=True)
class RenderTarget:
    """Where a flag set is written, for which FlagSet, and as which object."""

    namespace: str
    name: str
    flag_set: str
    owner: dict[str, Any] | None
    """The FlagSet's owner reference, for objects that shall be deleted with it."""
    remote: Mapping[str, Any] | None = None
    """The remote provider of its spec."""


def configuration_manifests(
    flag_set: FlagSet, target: RenderTarget, most_shards: int = MOST_SHARDS
) -> list[dict[str, Any]]:
    """The manifests in the order to write them: shards before their index. Raises TooLargeError."""
    document = canonical(flag_set, provenance=True)
    whole = _manifest(OPENFEATURE_VERSION, featureflagconfiguration.KIND, target.name, target, flag_set)
    remote = {} if target.remote is None else {FIELD: target.remote}
    if len(document) <= LARGEST:
        whole["spec"] = {"flagSpec": json.loads(document), **remote}
        return [whole]
    shards = [_shard(part, target, flag_set) for part in parts(json.loads(document))]
    if len(shards) > most_shards:
        raise TooLargeError(
            f"the flag set takes {len(shards)} shards, of {most_shards} that there may be; "
            "make several FlagSets of it"
        )
    whole["spec"] = {
        "shards": [
            {
                "name": shard["metadata"]["name"],
                "digest": shard["spec"]["digest"],
                "flags": len(shard["spec"]["flagSpec"]["flags"]),
            }
            for shard in shards
        ],
        "revision": str(flag_set.metadata.get(REVISION_KEY, "")),
        **remote,
    }
    return [*shards, whole]


def flag_manifest(flag_set: FlagSet, target: RenderTarget) -> dict[str, Any]:
    """The FeatureFlag for stock flagd, which reads one object and knows no shards. Raises TooLargeError."""
    document = canonical(flag_set, provenance=True)
    if len(document) > LARGEST:
        raise TooLargeError(
            f"the flag set takes {len(document)} bytes, of {LARGEST} that a FeatureFlag may have; "
            "take FeatureFlag out of spec.target.kinds, or make several FlagSets of it"
        )
    manifest = _manifest(
        OPENFEATURE_VERSION, featureflagconfiguration.FLAG_KIND, target.name, target, flag_set
    )
    manifest["spec"] = {"flagSpec": json.loads(document)}
    return manifest


def _shard(part: dict[str, Any], target: RenderTarget, flag_set: FlagSet) -> dict[str, Any]:
    name, spec = shard_of(target.name, part)
    manifest = _manifest(API_VERSION, flagshard.KIND, name, target, flag_set)
    # A shard outlives the revision that first had it.
    manifest["metadata"].pop("annotations")
    manifest["spec"] = spec
    return manifest


def _manifest(
    api_version: str, kind: str, name: str, target: RenderTarget, flag_set: FlagSet
) -> dict[str, Any]:
    annotations = {key: str(flag_set.metadata[key]) for key in ANNOTATIONS if key in flag_set.metadata}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": target.namespace,
        "labels": {flagset.LABEL: target.flag_set},
        "annotations": annotations,
    }
    if target.owner is not None:
        metadata["ownerReferences"] = [target.owner]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def with_observation_time(
    manifests: Sequence[dict[str, Any]],
    artifact: ArtifactStatus,
    created: str,
    find_existing: Callable[[ObjectKey], Resource | None],
) -> tuple[dict[str, Any], ...]:
    """The manifests with the time at which their revision was observed, unless an object has one already."""
    moment = _later(artifact.metadata.get(OBSERVED_AT) or artifact.last_update_time, created)
    return tuple(
        _stamp(manifest, artifact.revision, moment, find_existing(ObjectKey.of(manifest)))
        for manifest in manifests
    )


def _stamp(
    manifest: dict[str, Any], artifact_revision: str, moment: str, known: Resource | None
) -> dict[str, Any]:
    meta = manifest["metadata"]
    revision = (meta.get("annotations") or {}).get(REVISION_KEY)
    observed_at = moment if revision == artifact_revision else ""
    if known is not None and known.annotations.get(REVISION_KEY) == revision:
        observed_at = known.annotations.get(OBSERVED_AT) or observed_at
    if not observed_at or revision is None:
        return manifest
    annotations = {**meta["annotations"], OBSERVED_AT: observed_at}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def _later(moment: str, other: str) -> str:
    """The later of two RFC 3339 times; `moment` where one cannot be read."""
    try:
        return other if datetime.fromisoformat(other) > datetime.fromisoformat(moment) else moment
    except (ValueError, TypeError):
        return moment
