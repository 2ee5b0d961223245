"""FlagSet: a source's artifact becomes one flag set, and that the objects which deliver it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.fields import InvalidSpecError, read
from controller.api.flagset import KIND, FlagSetSpec, Validation
from controller.api.meta import API_VERSION, ObjectKey
from controller.artifacts.archive import unpack
from controller.flagsets import story
from controller.flagsets.applied import last_applied
from controller.flagsets.compose import Composition, FailurePolicy, Provenance, compose
from controller.flagsets.inputs import Artifacts, require_dependencies, source_artifact
from controller.flagsets.plan import MADE, belongs_to, key_of, plan
from controller.flagsets.render import Target, TooLargeError, configuration_manifests, flag_manifest
from controller.runtime.news import News
from controller.runtime.setbacks import Stalled
from controller.runtime.settle import Outcome
from evaluator.flags.model import Bucketing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.api.artifact import ArtifactStatus
    from controller.api.meta import Resource
    from controller.runtime.loop import Objects
    from evaluator.flags.model import FlagSet

JITTER: Final = 0.05
GRACE: Final = 60.0
"""Seconds for which a shard outlives the index that named it."""


class Writer(Protocol):
    """What a FlagSet writes to the cluster."""

    async def apply(
        self, manifest: Mapping[str, Any], *, manager: str
    ) -> tuple[dict[str, Any], str]:
        """Apply `manifest`; (the object, who had changed it by hand, if anybody). Raises Setback."""

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = ""
    ) -> None:
        """Delete an object, if it is still that one. Raises Setback."""


@dataclass(slots=True)
class _Memory:
    """What was built last for one FlagSet, so that looking again costs nothing."""

    built_from: tuple[Any, ...]
    composition: Composition
    manifests: list[dict[str, Any]]
    outdated: dict[str, datetime] = field(default_factory=dict)
    """Shards by name, since when nobody names them."""


@dataclass(frozen=True, slots=True)
class FlagSetReconciler:
    """Brings what delivers a flag set to what its source says."""

    objects: Objects
    artifacts: Artifacts
    writer: Writer
    applied: Callable[[dict[str, Any]], None]
    """Told of each object that was written."""
    random: Callable[[], float]
    _memory: dict[ObjectKey, _Memory] = field(default_factory=dict)

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Build, apply, remove what is outdated, and say how it went. Raises Setback."""
        try:
            spec = read(FlagSetSpec, resource.spec)
        except InvalidSpecError as error:
            raise Stalled("InvalidSpec", str(error)) from error
        require_dependencies(resource, spec, self.objects)
        artifact = source_artifact(resource, spec, self.objects)
        memory = await self._built(resource, spec, artifact)
        composition = memory.composition
        news, wait = await self._write(resource, spec, memory, now)
        status = self._status(resource, spec, story.Attempt(artifact, composition), now)
        if not composition.accepted:
            message = f"{artifact.revision} is refused: {story.first_problem(composition.problems)}"
            raise Stalled("BuildFailed", message, status=status)
        if resource.status.get("digest") != composition.digest:
            subject = f"{artifact.revision}: {story.changes(composition.changed)}"
            news = (*news, News("Applied", subject))
        if composition.held:
            message = _held(composition, artifact)
            raise Stalled("PartiallyApplied", message, status=status, news=news)
        warned = f"; {len(composition.problems)} warnings" if composition.problems else ""
        jitter = 1.0 + JITTER * (2.0 * self.random() - 1.0)
        return Outcome(
            message=f"Applied revision: {artifact.revision}{warned}",
            status=status,
            news=news,
            requeue_after=min(wait, spec.interval * jitter),
        )

    def forget(self, key: ObjectKey) -> None:
        """The FlagSet is gone; what it made goes by its owner reference, or stays."""
        self._memory.pop(key, None)

    async def _built(
        self, resource: Resource, spec: FlagSetSpec, artifact: ArtifactStatus
    ) -> _Memory:
        built_from = (artifact.digest, artifact.revision, resource.generation, resource.uid)
        memory = self._memory.get(resource.key)
        if memory is not None and memory.built_from == built_from:
            return memory
        archive = await self.artifacts.read(resource.namespace, artifact)
        previous = memory.composition.flag_set if memory else None
        if previous is None:
            previous = await asyncio.to_thread(last_applied, resource, spec, self.objects)
        try:
            made = await asyncio.to_thread(_build, archive, spec, artifact, resource, previous)
        except TooLargeError as error:
            raise Stalled("TooLarge", f"a FeatureFlag cannot be sharded: {error}") from error
        outdated = memory.outdated if memory else {}
        self._memory[resource.key] = built = _Memory(built_from, *made, outdated)
        return built

    async def _write(
        self, resource: Resource, spec: FlagSetSpec, memory: _Memory, now: datetime
    ) -> tuple[tuple[News, ...], float]:
        """Apply what differs and remove what is outdated; (news, seconds until more may be removed)."""
        if not memory.composition.accepted and not memory.composition.flag_set.flags:
            return (), spec.interval
        names = {key_of(each) for each in memory.manifests}
        found = [
            each
            for kind in MADE
            for each in self.objects.of_kind(kind)
            if each.namespace == resource.namespace
            and (each.key in names or belongs_to(each, resource.name))
        ]
        steps = plan(memory.manifests, found, prune=spec.prune)
        news: list[News] = []
        for manifest in steps.write:
            self._refuse_theft(resource, manifest)
            manager = f"flagstaff-flagset/{resource.namespace}/{resource.name}"
            body, others = await self.writer.apply(manifest, manager=manager[:128])
            self.applied(body)
            if others:
                key = key_of(manifest)
                news.append(
                    News("DriftCorrected", f"{key.kind} {key.name} was changed by {others}")
                )
        for each in steps.remove:
            await self._delete(each)
        return tuple(news), await self._sweep(memory, steps.outdated, spec, now)

    def _refuse_theft(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Two FlagSets with one target would overwrite each other for ever."""
        there = self.objects.get(key_of(manifest))
        owner = there.labels.get("flagstaff.dev/flagset") if there else None
        other = self.objects.get(ObjectKey(KIND, resource.namespace, owner)) if owner else None
        if there is not None and other is not None and owner != resource.name:
            raise Stalled(
                "OwnershipConflict",
                f"{there.key.kind} {there.name} belongs to FlagSet {owner}; give this one another target.name",
            )

    async def _sweep(
        self,
        memory: _Memory,
        outdated: tuple[Resource, ...],
        spec: FlagSetSpec,
        now: datetime,
    ) -> float:
        """Remove shards that nobody has named for a while; the seconds until the next may go."""
        since = {each.name: memory.outdated.get(each.name, now) for each in outdated}
        memory.outdated = since
        wait = spec.interval
        for each in outdated:
            left = GRACE - (now - since[each.name]).total_seconds()
            if left > 0:
                wait = min(wait, left + 1.0)
            else:
                await self._delete(each)
        return wait

    async def _delete(self, found: Resource) -> None:
        key = found.key
        await self.writer.delete(
            found.api_version, key.kind, key.namespace, key.name, uid=found.uid
        )

    def _status(
        self, resource: Resource, spec: FlagSetSpec, attempt: story.Attempt, now: datetime
    ) -> dict[str, Any]:
        artifact, composition = attempt.artifact, attempt.composition
        before = resource.status
        status: dict[str, Any] = {
            "lastAttemptedRevision": artifact.revision,
            "problemCount": len(composition.problems),
            "problems": story.problem_list(composition.problems),
        }
        if not composition.accepted:
            return status
        good = before.get("lastGoodRevision") if composition.held else artifact.revision
        targets = self._memory[resource.key].manifests
        status |= {
            "lastAppliedRevision": artifact.revision,
            "digest": composition.digest,
            "flagSetId": composition.flag_set.flag_set_id or "",
            "bucketing": spec.bucketing,
            "flags": len(composition.flag_set.flags),
            "heldFlags": len(composition.held),
            "held": story.held_list(composition),
            "target": _targets(targets),
            "history": story.history(before.get("history") or (), attempt, now),
        }
        if good:
            status["lastGoodRevision"] = good
        return status


def _build(
    archive: bytes,
    spec: FlagSetSpec,
    artifact: ArtifactStatus,
    resource: Resource,
    previous: FlagSet | None,
) -> tuple[Composition, list[dict[str, Any]]]:
    """Stage 3's decision and its rendering; all of it takes time and nothing else."""
    metadata = artifact.metadata
    composition = compose(
        unpack(archive),
        list(spec.paths),
        provenance=Provenance(
            artifact.revision,
            metadata.get("flagstaff.dev/author", ""),
            metadata.get("flagstaff.dev/committed-at", ""),
        ),
        previous=previous,
        policy=FailurePolicy(spec.failure_policy),
        lenient=spec.validation is Validation.LENIENT,
        default_flag_set_id=spec.flag_set_id or f"{resource.namespace}/{resource.name}",
        bucketing=Bucketing(spec.bucketing),
    )
    target = Target(
        resource.namespace,
        spec.target.name or resource.name,
        resource.name,
        _owner(resource) if spec.prune else None,
    )
    manifests: list[dict[str, Any]] = []
    if "FeatureFlagConfiguration" in spec.target.kinds:
        manifests += configuration_manifests(composition.flag_set, target)
    if "FeatureFlag" in spec.target.kinds:
        manifests.append(flag_manifest(composition.flag_set, target))
    return composition, manifests


def _owner(resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": resource.name,
        "uid": resource.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _targets(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = []
    for each in manifests:
        if each["kind"] != "FlagShard":
            entry: dict[str, Any] = {"kind": each["kind"], "name": each["metadata"]["name"]}
            if "shards" in each["spec"]:
                entry["shards"] = len(each["spec"]["shards"])
            told.append(entry)
    return told


def _held(composition: Composition, artifact: ArtifactStatus) -> str:
    flags = len(composition.flag_set.flags)
    return (
        f"{artifact.revision}: {len(composition.held)} of {flags} flags held at their last good definition: "
        f"{story.first_problem(composition.problems)}"
    )
