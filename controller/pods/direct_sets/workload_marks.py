"""What admission adds to a workload that carries flags, and removes from one that no longer does. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.pods.direct_sets.carried_flags import (
    METADATA,
    annotations_at,
    part_at,
    template_path,
    text_of,
)
from controller.pods.injection.changes import Changes
from controller.pods.settings import well_known
from controller.pods.settings.remarks import NAMESPACED, REFRESHABLE, SCOPED, remark_annotations, remark_of
from controller.runtime.user_text.plain_text import json_object, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.pods.direct_sets.carried_flags import CarriedFlags
    from controller.pods.injection.changes import Path

MARKED: Final = "true"
"""The value of the label."""
SELECTOR: Final = f"{well_known.DIRECT_SET}={MARKED}"
_USER: Final = 253
"""Characters of a user's name that are kept."""


class Applied(NamedTuple):
    """Who applies a workload, and when."""

    by: str
    """A user's name."""
    at: str
    """RFC 3339, in UTC."""


def mark(
    workload: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    carried: CarriedFlags,
    applied: Applied,
    remark: str,
) -> Changes:
    """Mark a workload for the controller, and have its pods ask for an evaluator. `before`: the workload as
    it is stored, None for a new one; `remark`: in one line, what becomes of it.
    """
    changes, template = Changes(workload), template_path(workload)
    known = record_in(before)
    added = _added_names(known)
    present = annotations_at(workload, template)
    if workload["kind"] != "Job" or before is None:
        missing = {} if well_known.ENABLED in present else {well_known.ENABLED: "true"}
        changes.merge((*template, "annotations"), {**missing, well_known.DIRECT_SET: carried.name})
        added |= missing.keys()
    elif well_known.DIRECT_SET not in present:
        changes.warnings = (
            f"{carried.where}: the pods' template of a Job cannot be changed; delete the Job and create "
            "it again",
        )
    if present.get(well_known.ENABLED, "true") != "true":
        changes.warnings = (
            f"annotation {well_known.ENABLED} of the pods' template is not true, so the pods get no "
            "evaluator; remove it",
        )
    if not (known.get("by") and text_of(before) == carried.text):
        known = {"by": one_line(applied.by, _USER), "at": applied.at}
    record = {"by": str(known["by"]), "at": str(known.get("at", "")), "added": sorted(added)}
    changes.merge((*METADATA, "labels"), {well_known.DIRECT_SET: MARKED})
    applied_by = {well_known.APPLIED: json.dumps(record, separators=(",", ":"))}
    remarks = remark_annotations(remark, annotations_at(workload, METADATA))
    changes.merge((*METADATA, "annotations"), {**applied_by, **remarks})
    return changes


def unmark(workload: Mapping[str, Any], before: Mapping[str, Any] | None) -> Changes:
    """Remove what `mark` added from a workload that carries no flags."""
    changes, template = Changes(workload), template_path(workload)
    _remove(changes, (*METADATA, "labels"), well_known.DIRECT_SET)
    _remove(changes, (*METADATA, "annotations"), well_known.APPLIED)
    for remarks in (well_known.REMARKS, well_known.PROPOSED_REMARKS):
        _remove(changes, (*METADATA, "annotations"), remarks)
    present = annotations_at(workload, template)
    if workload["kind"] != "Job" and well_known.DIRECT_SET in present:
        # Pods that follow other flags from now on still ask for an evaluator.
        added = well_known.ENABLED in _added_names(record_in(before))
        if added and present.keys().isdisjoint(well_known.FOLLOWED):
            _remove(changes, (*template, "annotations"), well_known.ENABLED)
        _remove(changes, (*template, "annotations"), well_known.DIRECT_SET)
    if text_of(before) is not None:
        name = part_at(workload, METADATA).get("name")
        changes.warnings = (
            f"{workload['kind']} {name} no longer carries flags: FeatureFlagConfiguration {name} is deleted, "
            "and running evaluators keep its flags until their pods are replaced",
        )
    return changes


def remark_on(carried: CarriedFlags) -> str:
    """What becomes of the flags, in one line."""
    words = NAMESPACED, SCOPED, REFRESHABLE
    return remark_of(words, f"flags of its own in FeatureFlagConfiguration {carried.name}")


def record_in(workload: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What `mark` recorded in a workload; empty where it did not."""
    text = annotations_at(workload or {}, METADATA).get(well_known.APPLIED)
    return (json_object(text) if isinstance(text, str) else None) or {}


def _added_names(record: Mapping[str, Any]) -> set[str]:
    """The annotations of the template that were added; a user may have written the record."""
    names = record.get("added")
    return {str(name) for name in names} if isinstance(names, list) else set()


def _remove(changes: Changes, path: Path, name: str) -> None:
    if name in part_at(changes.after, path):
        changes.remove((*path, name))
