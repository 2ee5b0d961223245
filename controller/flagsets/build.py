"""Stage 3's decision and its rendering: an archive and what was last good in, what is to stand in the cluster out. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controller.api.artifact import AUTHOR, COMMITTED_AT
from controller.api.flagset import KIND, Validation
from controller.api.meta import API_VERSION
from controller.artifacts.archive import unpack
from controller.flagsets.compose import Composition, FailurePolicy, Provenance, compose
from controller.flagsets.render import Target, TooLargeError, configuration_manifests, flag_manifest
from evaluator.flags.canonical import digest
from evaluator.flags.diff import Diff, diff
from evaluator.flags.model import Bucketing, FlagSet

if TYPE_CHECKING:
    from controller.api.artifact import ArtifactStatus
    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import Resource
    from controller.flagsets.applied import LastGood


@dataclass(frozen=True, slots=True)
class Built:
    """What a revision came to, and what is to stand in the cluster for it."""

    composition: Composition
    manifests: tuple[dict[str, Any], ...]
    """In the order in which they are to be written; none where there is nothing to deliver yet."""
    too_large: str = ""
    """Why the set cannot be written, although it is sound."""
    edited: str = ""
    """The object whose content is not what was written, where what was last good is asked for and only it could tell."""


def build(
    archive: bytes,
    spec: FlagSetSpec,
    artifact: ArtifactStatus,
    resource: Resource,
    last: LastGood | None,
) -> Built:
    """Decide and render; all of it takes time and nothing else. Raises ArchiveRefused."""
    # A hand's edit is nobody's commit: it is overwritten, and no flag is held at it.
    known = last.flag_set if last is not None and not last.edited else None
    composition = _composed(archive, spec, artifact, resource, known)
    if last is not None and last.edited:
        if not composition.accepted or composition.missing:
            return Built(composition, (), edited=last.edited)
        changed = diff(last.flag_set, composition.flag_set)
        composition = replace(composition, changed=changed)
    if not composition.accepted and known is None:
        return Built(composition, ())
    try:
        return Built(composition, _manifests(composition.flag_set, spec, resource))
    except TooLargeError as error:
        too_large = str(error)
    refused = replace(
        composition,
        flag_set=known or FlagSet(),
        digest=digest(known or FlagSet()),
        held=(),
        missing=(),
        changed=Diff((), {}, ()),
        accepted=False,
    )
    try:
        manifests = () if known is None else _manifests(known, spec, resource)
    except TooLargeError:
        manifests = ()
    return Built(refused, manifests, too_large)


def _composed(
    archive: bytes,
    spec: FlagSetSpec,
    artifact: ArtifactStatus,
    resource: Resource,
    previous: FlagSet | None,
) -> Composition:
    metadata = artifact.metadata
    return compose(
        unpack(archive),
        list(spec.paths),
        provenance=Provenance(
            artifact.revision, metadata.get(AUTHOR, ""), metadata.get(COMMITTED_AT, "")
        ),
        previous=previous,
        policy=FailurePolicy(spec.failure_policy),
        lenient=spec.validation is Validation.LENIENT,
        default_flag_set_id=spec.flag_set_id or f"{resource.namespace}/{resource.name}",
        bucketing=Bucketing(spec.bucketing),
    )


def _manifests(
    flag_set: FlagSet, spec: FlagSetSpec, resource: Resource
) -> tuple[dict[str, Any], ...]:
    target = Target(
        resource.namespace,
        spec.target.name or resource.name,
        resource.name,
        _owner(resource) if spec.prune else None,
    )
    manifests: list[dict[str, Any]] = []
    if "FeatureFlagConfiguration" in spec.target.kinds:
        manifests += configuration_manifests(flag_set, target)
    if "FeatureFlag" in spec.target.kinds:
        manifests.append(flag_manifest(flag_set, target))
    return tuple(manifests)


def _owner(resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": resource.name,
        "uid": resource.uid,
        "controller": True,
        # Deleting the FlagSet in the foreground needs not wait, and whoever writes it needs no right to finalizers.
        "blockOwnerDeletion": False,
    }
