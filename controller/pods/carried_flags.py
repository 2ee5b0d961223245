"""The flags and orders that a workload carries, and the marks that admission adds. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api.kinds import FLAG_CARRIERS
from controller.delivery.problem_text import CHARACTERS, MOST_NAMED, refusals, summary
from controller.delivery.standing_orders import ORDERS_LABEL, SPELLINGS, asks_for_order
from controller.pods import installation
from controller.pods.changes import ObjectPatch, Path
from controller.pods.installation import (
    NAMESPACED,
    REFRESHABLE,
    SCOPED,
    TEMPLATES,
    Known,
    PodRefused,
    remark_annotations,
    remark_of,
)
from controller.pods.near_misses import near_misses
from controller.pods.pod_orders import MARKED, PlacedOrder, read_order, require_orders
from controller.runtime.plain_text import json_object, one_line
from evaluator.flags.merge import parse
from evaluator.flags.model import BUCKETING_KEY, PROVENANCE_PREFIX, FlagSet
from evaluator.flags.model import Path as JsonPath
from evaluator.flags.text import json_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evaluator.flags.problems import Problem


KINDS: Final = tuple(type_.kind for type_ in FLAG_CARRIERS)
METADATA: Final = ("metadata",)
_WHERE: Final = f"annotation {installation.FLAGS}"


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
    texts = [annotations_at(workload, path).get(installation.FLAGS) for path in places]
    if texts == [None, None]:
        return None
    kind, name = str(workload["kind"]), part_at(workload, METADATA).get("name")
    if None not in texts:
        raise PodRefused(
            f"{_WHERE}: is on the {kind} and on its pods' template; keep it on the {kind}, where a change "
            "reaches running pods, and remove the other"
        )
    if not name:
        raise PodRefused(f"{_WHERE}: the flags get the name of their {kind}; write metadata.name")
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
    except PodRefused:
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
        f"f:{installation.FLAGS}" in part_at(entry, owned)
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and entry.get("operation") == "Apply"
    )


MOST_BYTES: Final = 64 * 1024
"""Of the annotation: `kubectl apply` keeps a second copy with escaped quotes, and all annotations of an
object have 256 KiB.
"""
MOST_APPLIED: Final = 128 * 1024
"""Of the annotation, where server-side apply writes it, which keeps no copy."""
_JSON: Final = re.compile(r"\s*(\{\s*[\"}]|\[|$)")
"""The beginning of a JSON document; anything else is read as YAML, of which JSON is a part."""


class DirectFlags(NamedTuple):
    """The flags of an annotation."""

    flag_set: FlagSet
    warnings: tuple[str, ...]
    """Warnings for the user who applies the workload."""


def read_flags(text: str, where: str, most: int = MOST_BYTES) -> DirectFlags:
    """Read flagd's document, JSON or YAML. `where`: what the message begins with; `most`: bytes of the text.
    Takes up to a second. Raises Refused, with line and JSON path of each problem.
    """
    content = text.encode(errors="surrogatepass")
    if len(content) > most:
        advice = (
            "apply it with kubectl apply --server-side, which allows "
            f"{MOST_APPLIED // 1024} KiB, or keep the flags in a FlagSet"
            if most < MOST_APPLIED and len(content) <= MOST_APPLIED
            else "keep the flags in a FlagSet"
        )
        raise PodRefused(
            f"{where}: has {len(content)} bytes, more than {most}; {advice} and name it with "
            "flagstaff.dev/flagset"
        )
    name = "flags.json" if _JSON.match(text) else "flags.yaml"
    try:
        parsed = parse(content, file=name)
    except RecursionError:
        raise PodRefused(f"{where}: the flags are nested too deeply to be read; make them flatter") from None
    problems = (*parsed.problems, *parsed.notes)
    bad = refusals(problems)
    reserved = [] if bad else [*_reserved_paths(parsed.flag_set)]
    if bad or reserved:
        texts = chain(map(_text, bad), map(_reserved_text, reserved))
        raise PodRefused(f"{where}: {summary(texts, len(bad) + len(reserved))}")
    return DirectFlags(
        parsed.flag_set, tuple(f"{where}: {_text(problem)}" for problem in problems[:MOST_NAMED])
    )


def warnings_of(text: str, where: str, most: int) -> tuple[str, ...]:
    """The warnings of `read_flags`. Raises Refused as it does."""
    return read_flags(text, where, most).warnings


def _reserved_paths(flag_set: FlagSet) -> Iterator[JsonPath]:
    """The places of metadata that Flagstaff alone writes."""
    flags = ((("flags", key, "metadata"), flag.metadata) for key, flag in flag_set.flags.items())
    for path, metadata in ((("metadata",), flag_set.metadata), *flags):
        for name in metadata:
            if name.startswith(PROVENANCE_PREFIX) and (name, path) != (BUCKETING_KEY, ("metadata",)):
                yield (*path, name)


def _reserved_text(path: JsonPath) -> str:
    return one_line(f"{json_path(path)}: is written by Flagstaff alone; remove it", CHARACTERS)


def _text(problem: Problem) -> str:
    """`line 4: $.flags.banner: …`, as far as the place is known."""
    line = f"line {problem.line}" if problem.line else ""
    path = problem.path if problem.path != "$" else ""
    return one_line(": ".join(filter(None, (line, path, problem.message))), CHARACTERS)


DIRECT_SET_MARK: Final = "true"
"""The value of the label."""
SELECTOR: Final = f"{installation.DIRECT_SET}={DIRECT_SET_MARK}"
_USER: Final = 253
"""Characters of a user's name that are kept."""


class WorkloadAuthor(NamedTuple):
    """Who applies a workload, and when."""

    by: str
    """A user's name."""
    at: str
    """RFC 3339, in UTC."""


def mark(
    workload: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    carried: CarriedFlags,
    applied: WorkloadAuthor,
) -> ObjectPatch:
    """Mark a workload for the controller, and have its pods ask for an evaluator. `before`: the workload as
    it is stored, None for a new one.
    """
    changes, template = ObjectPatch(workload), template_path(workload)
    known = record_in(before)
    added = _added_names(known)
    present = annotations_at(workload, template)
    if workload["kind"] != "Job" or before is None:
        missing = {} if installation.ENABLED in present else {installation.ENABLED: "true"}
        changes.merge((*template, "annotations"), {**missing, installation.DIRECT_SET: carried.name})
        added |= missing.keys()
    elif installation.DIRECT_SET not in present:
        changes.warnings = (
            f"{carried.where}: the pods' template of a Job cannot be changed; delete the Job and create "
            "it again",
        )
    if present.get(installation.ENABLED, "true") != "true":
        changes.warnings = (
            f"annotation {installation.ENABLED} of the pods' template is not true, so the pods get no "
            "evaluator; remove it",
        )
    if not (known.get("by") and text_of(before) == carried.text):
        known = {"by": one_line(applied.by, _USER), "at": applied.at}
    record = {"by": str(known["by"]), "at": str(known.get("at", "")), "added": sorted(added)}
    changes.merge((*METADATA, "labels"), {installation.DIRECT_SET: DIRECT_SET_MARK})
    applied_by = {installation.APPLIED: json.dumps(record, separators=(",", ":"))}
    changes.merge((*METADATA, "annotations"), applied_by)
    return changes


def unmark(workload: Mapping[str, Any], before: Mapping[str, Any] | None) -> ObjectPatch:
    """Remove what `mark` added from a workload that carries no flags."""
    changes, template = ObjectPatch(workload), template_path(workload)
    _remove(changes, (*METADATA, "labels"), installation.DIRECT_SET)
    _remove(changes, (*METADATA, "annotations"), installation.APPLIED)
    if not asks_for_order(annotations_at(workload, METADATA)):
        for remarks in (installation.REMARKS, installation.PROPOSED_REMARKS):
            _remove(changes, (*METADATA, "annotations"), remarks)
    present = annotations_at(workload, template)
    if workload["kind"] != "Job" and installation.DIRECT_SET in present:
        # Pods that follow other flags from now on still ask for an evaluator.
        added = installation.ENABLED in _added_names(record_in(before))
        if added and present.keys().isdisjoint(installation.FOLLOWED):
            _remove(changes, (*template, "annotations"), installation.ENABLED)
        _remove(changes, (*template, "annotations"), installation.DIRECT_SET)
    if text_of(before) is not None:
        name = part_at(workload, METADATA).get("name")
        changes.warnings = (
            f"{workload['kind']} {name} no longer carries flags: FeatureFlagConfiguration {name} is deleted, "
            "and running evaluators keep its flags until their pods are replaced",
        )
    return changes


def write_remark(changes: ObjectPatch, carried: CarriedFlags | None) -> None:
    """Say on a marked workload, in one line, what becomes of its flags and its order, and what else it nearly
    asked for. A warning says the last, too, and to a workload without flags and order it alone.
    """
    annotations = annotations_at(changes.after, METADATA)
    misses = tuple(miss.message for miss in near_misses(changes.after))
    changes.warnings += misses
    ordered = next((name for name, _ in SPELLINGS if name in annotations), "")
    if carried is None and not ordered:
        return
    words = () if carried is None else (NAMESPACED, SCOPED, REFRESHABLE)
    parts = (
        "" if carried is None else f"flags of its own in FeatureFlagConfiguration {carried.name}",
        f"its pods follow {annotations[ordered]}, which annotation {ordered} orders" if ordered else "",
    )
    remark = remark_of(words, *parts, *misses)
    changes.merge((*METADATA, "annotations"), remark_annotations(remark, annotations))


def record_in(workload: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What `mark` recorded in a workload; empty where it did not."""
    text = annotations_at(workload or {}, METADATA).get(installation.APPLIED)
    return (json_object(text) if isinstance(text, str) else None) or {}


def _added_names(record: Mapping[str, Any]) -> set[str]:
    """The annotations of the template that were added; a user may have written the record."""
    names = record.get("added")
    return {str(name) for name in names} if isinstance(names, list) else set()


def _remove(changes: ObjectPatch, path: Path, name: str) -> None:
    if name in part_at(changes.after, path):
        changes.remove((*path, name))


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
    except PodRefused as refusal:
        meta = manifest.get("metadata")
        name = meta.get("name", "") if isinstance(meta, dict) else ""
        raise PodRefused(f"{manifest['kind']} {name}: {refusal}") from None
    if record_in(manifest):
        return manifest
    changes = mark(manifest, None, carried, WorkloadAuthor("", ""))
    write_remark(changes, carried)
    return changes.after


_LABELS: Final = (*METADATA, "labels")


@dataclass(frozen=True, slots=True)
class WorkloadOrders:
    """Marks workloads with orders, and has their pods follow these."""

    known: Known
    namespace_labels: Callable[[str], Mapping[str, str] | None]
    """Returns the labels of a Namespace with a standing order, as far as it is known."""

    def mark(self, changes: ObjectPatch, before: Mapping[str, Any] | None, namespace: str) -> None:
        """Label the workload and its pods' template, if it has an order, and remove the labels if it has
        none. `before`: the workload as it is stored, None for a new one. Raises Refused for a new order that
        cannot be followed.
        """
        workload = changes.after
        asks = asks_for_order(annotations_at(workload, METADATA))
        template = (*template_path(workload), "labels")
        inherited = self.namespace_labels(namespace)
        marked = ORDERS_LABEL in part_at(workload, template) or inherited is not None
        paths: list[Path] = [_LABELS]
        # The template of a stored Job cannot be changed. Where a Namespace has an order, pods follow orders
        # already: a changed template would replace them.
        if before is None or (workload["kind"] != "Job" and inherited is None):
            paths.append(template)
        if workload["kind"] == "CronJob":
            paths.append(("spec", "jobTemplate", "metadata", "labels"))
        if not asks:
            for path in paths:
                if ORDERS_LABEL in part_at(workload, path):
                    changes.remove((*path, ORDERS_LABEL))
            return
        self._require(workload, before, namespace, inherited or {})
        for path in paths:
            changes.merge(path, {ORDERS_LABEL: MARKED})
        changes.warnings += _warnings(workload, before, marked=marked)

    def _require(
        self,
        workload: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        namespace: str,
        labels: Mapping[str, str],
    ) -> None:
        own = _order_at(workload, METADATA, namespace)
        try:
            stored = None if before is None else _order_at(before, METADATA, namespace)
        except PodRefused:
            stored = None
        if own == stored:
            return
        of_pods = _order_at(workload, template_path(workload), namespace)
        require_orders([read_order(labels, namespace, "label"), of_pods, own], namespace, self.known)


def _order_at(workload: Mapping[str, Any], path: Path, namespace: str) -> PlacedOrder | None:
    texts = {name: str(text) for name, text in annotations_at(workload, path).items()}
    return read_order(texts, namespace, "annotation")


def _warnings(
    workload: Mapping[str, Any], before: Mapping[str, Any] | None, *, marked: bool
) -> tuple[str, ...]:
    kind, name = workload["kind"], part_at(workload, METADATA).get("name")
    if before is not None and not marked and kind == "Job":
        return (
            f"the pods' template of Job {name} cannot be changed: its pods follow no standing orders; delete "
            "the Job and create it again",
        )
    if annotations_at(workload, template_path(workload)).get(installation.ENABLED, "true") != "true":
        return (
            f"annotation {installation.ENABLED} of the pods' template is not true, so the pods get no "
            "evaluator; remove it",
        )
    if before is not None and not marked and kind != "CronJob":
        return (f"{kind} {name} had no standing orders before: its pods are replaced, to get an evaluator",)
    return ()
