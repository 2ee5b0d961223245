"""The flags that a workload carries, and where. Pure: the workload may be anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import FLAG_CARRIERS
from controller.pods.injection.templates import TEMPLATES
from controller.pods.settings import well_known
from controller.pods.settings.installation import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.pods.injection.changes import Path

KINDS: Final = tuple(type_.kind for type_ in FLAG_CARRIERS)
METADATA: Final = ("metadata",)
_WHERE: Final = f"annotation {well_known.FLAGS}"


@dataclass(frozen=True, slots=True)
class CarriedFlags:
    """The flags of one workload."""

    kind: str
    name: str
    """The workload's name, and that of its FeatureFlagConfiguration."""
    text: str
    where: str
    """The place, as messages name it."""
    by_server: bool
    """Whether server-side apply writes the annotation."""


def carried_flags(workload: Mapping[str, Any]) -> CarriedFlags | None:
    """The flags of a workload of one of KINDS; None where it carries none. Raises Refused for flags in two
    places, and for a workload without a name.
    """
    places = [METADATA, template_path(workload)]
    texts = [annotations_at(workload, path).get(well_known.FLAGS) for path in places]
    if texts == [None, None]:
        return None
    kind, name = str(workload["kind"]), part_at(workload, METADATA).get("name")
    if None not in texts:
        raise Refused(
            f"{_WHERE}: is on the {kind} and on its pods' template; keep it on the {kind}, where a change "
            "reaches running pods, and remove the other"
        )
    if not name:
        raise Refused(f"{_WHERE}: the flags get the name of their {kind}; write metadata.name")
    in_template = texts[0] is None
    return CarriedFlags(
        kind,
        str(name),
        str(texts[in_template]),
        f"{_WHERE} of the pods' template" if in_template else _WHERE,
        _is_applied_by_server(workload, places[in_template]),
    )


def text_of(workload: Mapping[str, Any] | None) -> str | None:
    """The flags that a workload carries in one place; None where there is no workload."""
    try:
        carried = None if workload is None else carried_flags(workload)
    except Refused:
        return None
    return None if carried is None else carried.text


def template_path(workload: Mapping[str, Any]) -> Path:
    """The path of the metadata of the pods' template."""
    return (*TEMPLATES[workload["kind"]], "metadata")


def annotations_at(workload: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The annotations in the metadata at `path`."""
    return part_at(workload, (*path, "annotations"))


def part_at(body: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The mapping at `path`; an empty one where there is none."""
    part: Any = body
    for step in path:
        part = part.get(step) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def is_run_of_cron_job(workload: Mapping[str, Any]) -> bool:
    """Whether it is a Job that a CronJob made: its template, a copy, follows the flags of that."""
    if workload.get("kind") != "Job":
        return False
    owners = part_at(workload, METADATA).get("ownerReferences")
    listed = owners if isinstance(owners, list) else ()
    return any(isinstance(owner, dict) and owner.get("kind") == "CronJob" for owner in listed)


def _is_applied_by_server(workload: Mapping[str, Any], path: Path) -> bool:
    """Whether server-side apply owns the annotation in the metadata at `path`."""
    entries = part_at(workload, METADATA).get("managedFields")
    owned = ("fieldsV1", *(f"f:{step}" for step in (*path, "annotations")))
    return any(
        f"f:{well_known.FLAGS}" in part_at(entry, owned)
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("operation") == "Apply"
    )
