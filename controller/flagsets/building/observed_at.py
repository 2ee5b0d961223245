"""When a flag set's revision was first observed, as an annotation of what delivers it: what is measured from
push to served begins there. Pure.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from controller.api.receipt import OBSERVED_AT
from controller.flagsets.applying.plan import key_of
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controller.api.artifact import ArtifactStatus
    from controller.api.meta import ObjectKey, Resource


def observed(
    manifests: Sequence[dict[str, Any]],
    artifact: ArtifactStatus,
    created: str,
    there: Callable[[ObjectKey], Resource | None],
) -> tuple[dict[str, Any], ...]:
    """The manifests, each with the moment at which its revision was observed: not before its FlagSet was
    `created`, since it could not have been served.

    What an object says already of the same revision stands: an artifact may be stored again.
    """
    moment = _later(artifact.metadata.get(OBSERVED_AT) or artifact.last_update_time, created)
    return tuple(_stamped(each, artifact.revision, moment, there(key_of(each))) for each in manifests)


def _stamped(manifest: dict[str, Any], found: str, moment: str, known: Resource | None) -> dict[str, Any]:
    meta = manifest["metadata"]
    revision = (meta.get("annotations") or {}).get(REVISION_KEY)
    observed_at = moment if revision == found else ""
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
