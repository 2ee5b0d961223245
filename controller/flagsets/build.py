"""Stage 3's decision: from an archive and what was last good to manifests for the cluster. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration, flagset, flagshard
from controller.api.flagreceipt import OBSERVED_AT
from controller.api.flagset import FlagSetSpec, TestMode, Validation
from controller.api.meta import (
    ACCEPT_REVISION,
    API_VERSION,
    OPENFEATURE_VERSION,
    ObjectKey,
    Resource,
    lets_through,
)
from controller.api.remote_provider import FIELD, provider_spec
from controller.artifacts.archive import take_skipped, unpack
from controller.delivery.changed_flags import FlagDifference, changed_flags, differences
from controller.delivery.delivered import LARGEST, TooLargeError, parts, shard_of
from controller.flagsets.compose import (
    BulkRemoval,
    Composition,
    FailurePolicy,
    RequiredTests,
    bulk_removal,
    compose,
    provenance_of,
    refuse_revision,
)
from controller.flagsets.patches import Patch
from controller.flagsets.preparation import NO_STEPS, Steps
from evaluator.flags.canonical import canonical
from evaluator.flags.diff import diff
from evaluator.flags.model import (
    AUTHOR_KEY,
    COMMITTED_AT_KEY,
    DIGEST_KEY,
    REVISION_KEY,
    VERIFIED_BY_KEY,
    Bucketing,
    FlagSet,
)
from evaluator.flags.problems import Problem, Severity
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from controller.api.artifact_status import ArtifactStatus
    from controller.authoring.policies import Circumstances
    from controller.flagsets.applied import LastDelivered


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
    moment = observation_time(artifact, created)
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


def observation_time(artifact: ArtifactStatus, created: str) -> str:
    """When a revision was first observed, but not before the FlagSet was `created`; RFC 3339 times."""
    moment = artifact.metadata.get(OBSERVED_AT) or artifact.last_update_time
    read, later = parse_time(moment), parse_time(created)
    return moment if read is None or later is None or later <= read else created


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


def build(  # noqa: PLR0913, PLR0917 - one decision, all of it named at the call
    archive: bytes,
    spec: FlagSetSpec,
    artifact: ArtifactStatus,
    resource: Resource,
    last: LastDelivered | None,
    steps: Steps = NO_STEPS,
    others: Sequence[FlagSet] = (),
    around: Circumstances | None = None,
    *,
    named: bool = True,
) -> Built:
    """Decide and render. Raises ArchiveRefused. `others`: the flag sets that this one depends on; `around`:
    how the revision comes, without what is served; `named`: a set without a flagSetId gets the FlagSet's.
    """
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
        tests=_tests(spec),
        others=others,
        around=around and around._replace(before=None if last is None else last.flag_set),
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


def _tests(spec: FlagSetSpec) -> RequiredTests | None:
    if spec.tests.mode is TestMode.OFF:
        return None
    return RequiredTests(spec.tests.mode is TestMode.REQUIRE, spec.tests.min_coverage)


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
        # An owner in another cluster would be unknown there, and the object be deleted.
        resource.owner_reference | {"controller": True} if spec.prune and spec.kube_config is None else None,
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
