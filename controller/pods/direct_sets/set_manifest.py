"""The FeatureFlagConfiguration that is made of a workload's flags. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagreceipt import OBSERVED_AT
from controller.api.objects.meta import OPENFEATURE_VERSION
from controller.api.openfeature.featureflagconfiguration import KIND
from controller.pods.settings.well_known import DIRECT_SET
from evaluator.flags.canonical import canonical
from evaluator.flags.model import AUTHOR_KEY, COMMITTED_AT_KEY, REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.objects.meta import Resource
    from controller.pods.direct_sets.marked_workloads import MarkedWorkload
    from evaluator.flags.model import FlagSet

GENERATION: Final = "flagstaff.dev/workload-generation"
"""The annotation with the workload's generation when its flags were written."""


def set_manifest(workload: MarkedWorkload, flag_set: FlagSet) -> dict[str, Any]:
    """The object, named after the workload and owned by it, with provenance in its annotations and, for
    answers, in the set's metadata.
    """
    key, digest = workload.key, hashlib.sha256(workload.text.encode(errors="surrogatepass")).hexdigest()
    given = {
        REVISION_KEY: f"{key.kind}/{key.name}@sha256:{digest}",
        AUTHOR_KEY: workload.by,
        COMMITTED_AT_KEY: workload.at,
    }
    provenance = {name: text for name, text in given.items() if text}
    metadata = MappingProxyType({**flag_set.metadata, **provenance})
    observed = {OBSERVED_AT: workload.at} if workload.at else {}
    return {
        "apiVersion": OPENFEATURE_VERSION,
        "kind": KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {DIRECT_SET: key.kind},
            "annotations": {**provenance, **observed, GENERATION: str(workload.resource.generation)},
            "ownerReferences": [workload.resource.owner_reference],
        },
        "spec": {"flagSpec": json.loads(canonical(replace(flag_set, metadata=metadata), provenance=True))},
    }


def is_written(current: Resource | None, manifest: Mapping[str, Any]) -> bool:
    """Whether the object is as the manifest has it. A newer generation of the workload alone is none."""
    if current is None:
        return False
    meta = manifest["metadata"]
    wanted = {name: text for name, text in meta["annotations"].items() if name != GENERATION}
    (owner,) = meta["ownerReferences"]
    return (
        current.spec == manifest["spec"]
        and meta["labels"].items() <= current.labels.items()
        and wanted.items() <= current.annotations.items()
        and [reference.get("uid") for reference in current.owners] == [owner["uid"]]
    )
