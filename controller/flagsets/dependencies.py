"""Finds the artifact that a FlagSet is built from, once everything that it depends on is ready."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api import flaggrant, flagrollout, flagsource
from controller.api.artifact_status import ArtifactStatus, artifact_of
from controller.api.fields import InvalidSpecError
from controller.api.flagset import DEPENDENCY_VARIABLES, KIND, FlagSetSpec, list_items, source_key
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey, Resource
from controller.api.status import DEPENDENCIES_SERVED, FALSE, READY, ROLLOUT_ACTIVE, Condition
from controller.delivery.grants import Referring, denial_message, granted_kinds
from controller.delivery.promotion import promotion_of, writers_of
from controller.runtime.event import Occurrence
from controller.runtime.setbacks import Failed, Passing, Stalled, Waiting
from controller.runtime.watches import cycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from controller.runtime.cache import Cache


SOURCE_READY: Final = "SourceReady"
"""A detail, there only while it is False."""
CONCERNS: Final = (SOURCE_READY, DEPENDENCIES_SERVED)
"""What is there only while it is False."""
_RETRY_SECONDS: Final = 10.0
"""Seconds until a new source is read again: a slow source wakes no FlagSet."""


class Artifacts(Protocol):
    """Reads artifacts, our own and Flux's."""

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        """The archive, bounded, its digest checked. Raises Setback."""


async def require_dependencies(
    resource: Resource, spec: FlagSetSpec, objects: Cache, artifact: ArtifactStatus, now: datetime
) -> None:
    """Raise Waiting until every FlagSet, FlagRollout and source that this one depends on is ready, Stalled
    where FlagSets wait for each other.

    One is ready where its `readyExpr` says so, or without one where it is Ready. Then a FlagSet of the same
    source must have applied the same revision, as with Flux: a commit that changes both is taken in order.
    A FlagRollout must have promoted the same commit, from whatever source: it may be Ready as it has not seen
    that yet.
    """
    if names := cycle(resource, objects, partial(_awaited_names, objects)):
        raise Stalled("DependencyCycle", f"these FlagSets wait for each other: {' → '.join(names)}")
    for index, reference in enumerate(spec.depends_on):
        title = f"{reference.kind} {reference.name}"
        dependency = objects.get(ObjectKey(reference.kind, resource.namespace, reference.name))
        if dependency is None:
            raise Waiting(
                "DependencyNotReady", f"{title} does not exist; create it, or correct spec.dependsOn"
            )
        if reference.kind == flagrollout.KIND:
            _require_promoted(resource, dependency, objects, artifact.revision, now)
        if reference.ready_expr is not None:
            await _require_true(
                f"spec.dependsOn.{index}.readyExpr", reference.ready_expr, resource, dependency
            )
            continue
        if reference.kind == flagrollout.KIND:
            continue
        if not ready(dependency):
            raise Waiting("DependencyNotReady", f"{title} is not ready{status_of(dependency).why}")
        same = reference.kind == KIND and source_key(dependency) == source_key(resource)
        if same and FlagSetStatus.of(dependency).last_applied_revision != artifact.revision:
            raise Waiting(
                "DependencyNotReady", f"FlagSet {reference.name} has not applied {artifact.revision} yet"
            )


def _require_promoted(
    flag_set: Resource, rollout: Resource, objects: Cache, revision: str, now: datetime
) -> None:
    """Raise Waiting until a FlagRollout has promoted a revision, unless that was let through before."""
    if FlagSetStatus.of(flag_set).last_applied_revision == revision:
        return
    promotion = promotion_of(objects, rollout, revision, now)
    if not promotion.done:
        message = f"FlagRollout {rollout.name} has not promoted {revision}: {promotion.message}"
        raise Waiting("DependencyNotReady", message)


async def _require_true(field: str, text: str, resource: Resource, dependency: Resource) -> None:
    """Raise Waiting until the expression is true."""
    # In a thread: there may be dozens of expressions, of two tenths of a second each.
    problem = await asyncio.to_thread(_problem, text, _body(resource), _body(dependency))
    if problem:
        raise Waiting(
            "DependencyNotReady", f"{dependency.key.kind} {dependency.name} is not ready: {field} {problem}"
        )


def _problem(text: str, resource: dict[str, Any], dependency: dict[str, Any]) -> str:
    """Return why the expression is not true, as the end of a sentence; empty if it is. Blocks."""
    # Reading it takes as long as all the rest, for the few that have one.
    from controller.api.expression_syntax import ExpressionError  # noqa: PLC0415
    from controller.runtime.expressions import Expression  # noqa: PLC0415

    try:
        expression = Expression.of(text, DEPENDENCY_VARIABLES)
        return "" if expression.holds({"self": resource, "dep": dependency}) else "is false"
    except ExpressionError as error:
        return f"fails: {error}"


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
    """Return the artifact in the source's status. Raises Waiting if there is none, Stalled if denied."""
    reference = spec.source_ref
    title = f"{reference.kind} {reference.name}"
    key = ObjectKey(reference.kind, reference.namespace or resource.namespace, reference.name)
    if not may_read(resource.namespace, key, objects):
        who = Referring(KIND, resource.namespace)
        raise Stalled("AccessDenied", denial_message(who, key.namespace, key.name, (key.kind,)))
    source = objects.get(key)
    if source is None:
        raise Waiting("ArtifactFailed", f"{title} does not exist; create it, or correct spec.sourceRef")
    try:
        artifact = artifact_of(source)
    except InvalidSpecError as error:
        raise Failed("ArtifactFailed", f"{title} has an artifact that cannot be used: {error}") from error
    if artifact is None:
        message = f"{title} has no artifact yet{status_of(source).why}"
        new = not status_of(source).conditions and not status_of(resource).conditions
        if new and reference.kind == flagsource.KIND and not source.suspended:
            # Both were just created, and the source will be reconciled.
            raise Passing("ArtifactFailed", message, delay=_RETRY_SECONDS)
        raise Waiting("ArtifactFailed", message)
    return artifact if reference.kind == flagsource.KIND else artifact.without_signer()


def may_read(reader: str, source: ObjectKey, objects: Cache) -> bool:
    """Whether FlagSets of `reader`, a namespace, may refer to `source`: elsewhere by a FlagGrant alone."""
    if reader == source.namespace:
        return True
    grants = objects.of_kind(flaggrant.KIND, source.namespace)
    return bool(granted_kinds(grants, Referring(KIND, reader), source.name, (source.kind,)))


def input_concerns(flag_set: Resource, objects: Cache) -> tuple[Condition, ...]:
    """Those of CONCERNS that hold."""
    return (*source_health(flag_set, objects), *unserved_dependencies(flag_set, objects))


def source_health(resource: Resource, objects: Cache) -> tuple[Condition, ...]:
    """`SourceReady`, while the source is suspended or fails, which `Ready` does not show."""
    key = source_key(resource)
    source = objects.get(key) if key is not None else None
    if key is None or source is None or not may_read(resource.namespace, key, objects):
        return ()
    readiness = status_of(source).condition(READY)
    if source.suspended:
        reason, message = "SourceSuspended", "is suspended; nothing new is read from it"
    elif readiness.status == FALSE:
        reason, message = "SourceFailed", f"is not ready: {readiness.message or readiness.reason}"
    else:
        return ()
    return (Condition(SOURCE_READY, FALSE, reason, f"{key.kind} {key.name} {message}"),)


def source_changes(status: FlagSetStatus, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """Occurrences for a source that went stale or recovered since the `status` before; `details` are new."""
    served = status.last_applied_revision
    stale = next((condition for condition in details if condition.type == SOURCE_READY), None)
    if not served or (stale.reason if stale else "") == status.condition(SOURCE_READY).reason:
        return ()
    if stale is None:
        return (Occurrence("SourceRecovered", "the source is not stale any more", ends=True),)
    return (Occurrence("SourceStale", f"{stale.message}; {served} stays served", warning=True),)


def unserved_dependencies(flag_set: Resource, objects: Cache) -> tuple[Condition, ...]:
    """`DependenciesServed`, while changes of FlagSets on which this one depends are rolled out: what it
    changes itself is served to all users nevertheless.
    """
    names = dict.fromkeys(_dependency_names(flag_set))
    dependencies = (objects.get(ObjectKey(KIND, flag_set.namespace, name)) for name in names)
    texts = [
        f"FlagSet {dependency.name} is applied, but not served to all users: {rollout.message}"
        for dependency in filter(None, dependencies)
        for rollout in status_of(dependency).conditions_of(ROLLOUT_ACTIVE)
    ]
    if not texts:
        return ()
    return (Condition(DEPENDENCIES_SERVED, FALSE, "DependencyRollout", "; ".join(texts)),)


def ready(resource: Resource) -> bool:
    """Whether an object is Ready, as of its present generation."""
    status = status_of(resource)
    return status.is_ready and status.observed_generation == resource.generation


def _awaited_names(objects: Cache, flag_set: Resource) -> Iterator[str]:
    """Yield the FlagSets that one waits for: also those with the flags of FlagRollouts."""
    yield from _dependency_names(flag_set)
    for reference in list_items(flag_set, "dependsOn"):
        if reference.get("kind") == flagrollout.KIND:
            key = ObjectKey(flagrollout.KIND, flag_set.namespace, str(reference.get("name")))
            rollout = objects.get(key)
            yield from (writer.name for writer in (writers_of(objects, rollout) if rollout else ()))


def _dependency_names(flag_set: Resource) -> list[str]:
    references = list_items(flag_set, "dependsOn")
    return [str(reference.get("name")) for reference in references if reference.get("kind") in {None, KIND}]
