"""Stage 3's decision: from an archive and what was last good to manifests for the cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controller.api.flagset import Validation
from controller.api.objects.meta import ACCEPT_REVISION, lets_through
from controller.api.remote_provider import provider_spec
from controller.artifacts.archive import take_skipped, unpack
from controller.delivery.changed_flags import FlagDifference, changed_flags, differences
from controller.delivery.sharding import TooLargeError
from controller.flagsets.building.commit_provenance import provenance_of
from controller.flagsets.building.compose import (
    Composition,
    FailurePolicy,
    bulk_removal,
    compose,
    refuse_revision,
)
from controller.flagsets.building.render import RenderTarget, configuration_manifests, flag_manifest
from controller.flagsets.preparing.patches import Patch
from controller.flagsets.preparing.preparation import NO_STEPS, Steps
from evaluator.flags.diff import diff
from evaluator.flags.model import Bucketing, FlagSet
from evaluator.flags.syntax.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.flagset import FlagSetSpec
    from controller.api.objects.artifact_status import ArtifactStatus
    from controller.api.objects.meta import Resource
    from controller.flagsets.applying.applied import LastDelivered
    from controller.flagsets.building.compose import BulkRemoval


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building a revision, and the objects to write for it."""

    composition: Composition
    manifests: tuple[dict[str, Any], ...]
    """The objects in the order in which they are to be written; none if there is nothing to deliver yet."""
    too_large: str = ""
    """Why the set cannot be written, although it is sound."""
    removal: BulkRemoval | None = None
    """The flags that the prune guard keeps the revision from removing."""
    edited: str = ""
    """The object that was edited by hand, where it alone could supply the last good content."""
    lines: tuple[str, ...] = ()
    """What it changes, a line for each of the first flags."""
    differences: tuple[FlagDifference, ...] = ()
    """The same as data."""


def build(  # noqa: PLR0913 - one decision, all of it named at the call
    archive: bytes,
    spec: FlagSetSpec,
    artifact: ArtifactStatus,
    resource: Resource,
    last: LastDelivered | None,
    steps: Steps = NO_STEPS,
    *,
    named: bool = True,
) -> Built:
    """Decide and render. Raises ArchiveRefused. `named`: a set without a flagSetId gets the FlagSet's."""
    # A manual edit is not of a commit: it is overwritten, and no flag is held at it.
    known = last.flag_set if last is not None and not last.edited else None
    flag_set_id = (spec.flag_set_id or f"{resource.namespace}/{resource.name}") if named else None
    files = unpack(archive)
    composition = compose(
        files,
        list(spec.paths),
        provenance=provenance_of(
            artifact.revision, artifact.author, artifact.committed_at, artifact.verified_by
        ),
        previous=known,
        policy=FailurePolicy(spec.failure_policy),
        lenient=spec.validation is Validation.LENIENT,
        default_flag_set_id=flag_set_id,
        bucketing=Bucketing(spec.bucketing),
        skipped=take_skipped(files),
        steps=steps,
        patches=[Patch(f"spec.patches[{index}]", patch.patch) for index, patch in enumerate(spec.patches)],
    )
    if last is not None and (removal := _held_removal(last, composition, spec, artifact, resource)):
        problem = Problem("", 0, 0, Severity.ERROR, "prune-guard", str(removal))
        held = refuse_revision(last.flag_set, (*composition.problems, problem))
        return Built(held, _known_manifests(known, spec, resource), removal=removal)
    if last is not None and last.edited:
        if not composition.accepted or composition.missing:
            return Built(composition, (), edited=last.edited)
        composition = replace(composition, changed=diff(last.flag_set, composition.flag_set))
    nothing_yet = known is None and not composition.accepted
    before = None if last is None else last.flag_set
    changes = (before, composition.flag_set, composition.changed)
    lines, told = ((), ()) if nothing_yet else (changed_flags(*changes), differences(*changes))
    try:
        manifests = () if nothing_yet else _manifests(composition.flag_set, spec, resource)
    except TooLargeError as error:
        return Built(
            refuse_revision(known, composition.problems), _known_manifests(known, spec, resource), str(error)
        )
    return Built(composition, manifests, lines=lines, differences=told)


def _held_removal(
    last: LastDelivered,
    composition: Composition,
    spec: FlagSetSpec,
    artifact: ArtifactStatus,
    resource: Resource,
) -> BulkRemoval | None:
    """Return what the prune guard keeps the revision from removing, unless that was accepted."""
    accepted = resource.annotations.get(ACCEPT_REVISION, "")
    guards = spec.prune_guard and composition.accepted and not lets_through(accepted, artifact.revision)
    return bulk_removal(last.flag_set, composition.flag_set) if guards else None


def _known_manifests(
    known: FlagSet | None, spec: FlagSetSpec, resource: Resource
) -> tuple[dict[str, Any], ...]:
    """Return the objects for the last good set; none if there is no such set, or it is too large now."""
    try:
        return () if known is None else _manifests(known, spec, resource)
    except TooLargeError:
        return ()


def _manifests(flag_set: FlagSet, spec: FlagSetSpec, resource: Resource) -> tuple[dict[str, Any], ...]:
    target = RenderTarget(
        resource.namespace,
        spec.target.name or resource.name,
        resource.name,
        resource.owner_reference | {"controller": True} if spec.prune else None,
        _remote(spec, resource),
    )
    manifests: list[dict[str, Any]] = []
    if "FeatureFlagConfiguration" in spec.target.kinds:
        manifests += configuration_manifests(flag_set, target)
    if "FeatureFlag" in spec.target.kinds:
        manifests.append(flag_manifest(flag_set, target))
    return tuple(manifests)


def _remote(spec: FlagSetSpec, resource: Resource) -> Mapping[str, Any] | None:
    """Return the remote provider as it was written; its Secret is read as the FlagSet's service account."""
    given = provider_spec(resource)
    account = spec.service_account_name
    return given if given is None or account is None else {"serviceAccountName": account, **given}
