"""Finds the artifact that a FlagSet is built from, once everything that it depends on is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api import flagsource
from controller.api.artifact import ArtifactStatus
from controller.api.conditions import FALSE, READY, TRUE, Condition, find, why
from controller.api.fields import InvalidSpecError, read
from controller.api.flagset import DEPENDENCY_VARIABLES, KIND, source_key
from controller.api.meta import ObjectKey
from controller.flagsets.reading.references import listed, may_read, require_grant
from controller.runtime.events import Occurrence
from controller.runtime.reconciling.cycles import cycle
from controller.runtime.reconciling.setbacks import Failed, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import Resource
    from controller.runtime.objects.cache import Cache


SOURCE_READY: Final = "SourceReady"
"""A detail, there only while it is False."""


class Artifacts(Protocol):
    """Reads artifacts, our own and Flux's."""

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        """The archive, bounded, its digest checked. Raises Setback."""


def require_dependencies(
    resource: Resource, spec: FlagSetSpec, objects: Cache, artifact: ArtifactStatus
) -> None:
    """Raises Waiting until every FlagSet and source that this one depends on is ready, Stalled where FlagSets
    wait for each other.

    One is ready where its `readyExpr` says so, or without one where it is Ready. Then a FlagSet of the same
    source must have applied the same revision, as with Flux: a commit that changes both is taken in order.
    """
    if names := cycle(resource, objects, _awaited):
        raise Stalled("DependencyCycle", f"these FlagSets wait for each other: {' → '.join(names)}")
    for index, each in enumerate(spec.depends_on):
        what = f"{each.kind} {each.name}"
        found = objects.get(ObjectKey(each.kind, resource.namespace, each.name))
        if found is None:
            raise Waiting(
                "DependencyNotReady", f"{what} does not exist; create it, or correct spec.dependsOn"
            )
        if each.ready_expr is not None:
            _require_true(f"spec.dependsOn.{index}.readyExpr", each.ready_expr, resource, found)
            continue
        if not ready(found):
            raise Waiting("DependencyNotReady", f"{what} is not ready{why(found.status)}")
        same = each.kind == KIND and source_key(found) == source_key(resource)
        if same and found.status.get("lastAppliedRevision") != artifact.revision:
            raise Waiting(
                "DependencyNotReady", f"FlagSet {each.name} has not applied {artifact.revision} yet"
            )


def _require_true(field: str, text: str, resource: Resource, found: Resource) -> None:
    """Raises Waiting until the expression is true."""
    # Reading it takes as long as all the rest, for the few that have one.
    from controller.api.parsing.expression_syntax import ExpressionError  # noqa: PLC0415
    from controller.runtime.user_text.expressions import Expression  # noqa: PLC0415

    what = f"{found.key.kind} {found.name}"
    try:
        expression = Expression.of(text, DEPENDENCY_VARIABLES)
        true = expression.holds({"self": _body(resource), "dep": _body(found)})
    except ExpressionError as error:
        raise Waiting("DependencyNotReady", f"{what} is not ready: {field} fails: {error}") from None
    if not true:
        raise Waiting("DependencyNotReady", f"{what} is not ready: {field} is false")


def _body(resource: Resource) -> dict[str, Any]:
    metadata = {
        "name": resource.name,
        "namespace": resource.namespace,
        "generation": resource.generation,
        "labels": dict(resource.labels),
        "annotations": dict(resource.annotations),
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.key.kind,
        "metadata": metadata,
        "spec": dict(resource.spec),
        "status": dict(resource.status),
    }


def source_artifact(resource: Resource, spec: FlagSetSpec, objects: Cache) -> ArtifactStatus:
    """The artifact in the source's status. Raises Waiting where there is none, Stalled where it is denied."""
    reference = spec.source_ref
    what = f"{reference.kind} {reference.name}"
    key = ObjectKey(reference.kind, reference.namespace or resource.namespace, reference.name)
    require_grant(resource.namespace, key, objects)
    source = objects.get(key)
    if source is None:
        raise Waiting("ArtifactFailed", f"{what} does not exist; create it, or correct spec.sourceRef")
    reported = source.status.get("artifact")
    if reported is None:
        raise Waiting("ArtifactFailed", f"{what} has no artifact yet{why(source.status)}")
    try:
        artifact = read(ArtifactStatus, reported if isinstance(reported, dict) else {})
    except InvalidSpecError as error:
        message = (
            f"{what} has an artifact that cannot be used: {str(error).replace('spec.', 'status.artifact.')}"
        )
        raise Failed("ArtifactFailed", message) from error
    return artifact if reference.kind == flagsource.KIND else artifact.unverified()


def source_health(resource: Resource, objects: Cache) -> tuple[Condition, ...]:
    """`SourceReady`, while the source is suspended or fails, which `Ready` does not show."""
    key = source_key(resource)
    source = objects.get(key) if key is not None else None
    if key is None or source is None or not may_read(resource.namespace, key, objects):
        return ()
    found = find(source.status, READY)
    if source.suspended:
        reason, message = "SourceSuspended", "is suspended; nothing new is read from it"
    elif found is not None and found.get("status") == FALSE:
        reason, message = "SourceFailed", f"is not ready: {found.get('message') or found.get('reason')}"
    else:
        return ()
    return (Condition(SOURCE_READY, FALSE, reason, f"{key.kind} {key.name} {message}"),)


def source_changes(status: Mapping[str, Any], details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """Occurrences for a source that went stale or recovered since the `status` before; `details` are new."""
    served = str(status.get("lastAppliedRevision") or "")
    known = find(status, SOURCE_READY) or {}
    found = next((each for each in details if each.type == SOURCE_READY), None)
    if not served or (found.reason if found else None) == known.get("reason"):
        return ()
    if found is None:
        return (Occurrence("SourceRecovered", "the source is not stale any more", ends=True),)
    return (Occurrence("SourceStale", f"{found.message}; {served} stays served", warning=True),)


def ready(resource: Resource) -> bool:
    """Whether an object is Ready, as of its present generation."""
    found = find(resource.status, READY)
    current = resource.status.get("observedGeneration") == resource.generation
    return current and found is not None and found.get("status") == TRUE


def _awaited(flag_set: Resource) -> list[str]:
    references = listed(flag_set, "dependsOn")
    return [str(each.get("name")) for each in references if each.get("kind") in {None, KIND}]
