"""FlagSet: a source's artifact becomes one flag set, and that the objects which deliver it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from controller.api import configuration
from controller.api.conditions import FALSE, UNDISPUTED, Condition, find
from controller.api.fields import InvalidSpecError, read
from controller.api.flagset import FlagSetSpec
from controller.api.meta import ObjectKey
from controller.delivery.served import shown
from controller.flagsets import messages
from controller.flagsets.applied import LastGood, last_applied, written_by
from controller.flagsets.build import Built, accepted_by_hand, build
from controller.flagsets.delivery import Delivered, Delivery
from controller.flagsets.dependencies import (
    SOURCE_READY,
    Artifacts,
    require_dependencies,
    source_artifact,
    source_health,
)
from controller.flagsets.observed_at import observed
from controller.flagsets.plan import belongs_to
from controller.flagsets.provenance import ProvenanceDetail, without_author
from controller.runtime.news import News
from controller.runtime.setbacks import Setback, Stalled
from controller.runtime.settle import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.artifact import ArtifactStatus
    from controller.api.meta import Resource
    from controller.runtime.applier import Applier
    from controller.runtime.cache import Cache

JITTER: Final = 0.05
"""Of the interval, to both sides: flag sets that were made together are looked at apart."""


@dataclass(slots=True)
class _Memory:
    """What was built last for one FlagSet, so that looking again costs nothing."""

    built_from: tuple[Any, ...]
    generation: tuple[str, int]
    built: Built
    state: Delivered
    before: str | None
    """The digest that the status told when this was built."""

    def holds(self, told: str | None) -> bool:
        """Whether nobody else has led since; `told` is the digest of the status now."""
        mine = self.built.composition.digest
        return told is None or told == mine or (not self.state.settled and told == self.before)


@dataclass(frozen=True, slots=True)
class FlagSetReconciler:
    """Brings what delivers a flag set to what its source says."""

    objects: Cache
    artifacts: Artifacts
    writer: Applier
    applied: Callable[[dict[str, Any]], None]
    """Told of each object that was written."""
    random: Callable[[], float]
    """From 0 to 1."""
    detail: ProvenanceDetail = ProvenanceDetail.FULL
    """What is told of a commit."""
    build: Callable[[bytes, FlagSetSpec, ArtifactStatus, Resource, LastGood | None], Built] = build
    """Called in a thread."""
    _memory: dict[ObjectKey, _Memory] = field(default_factory=dict)

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Build, apply, remove what is outdated, and say how it went. Raises Setback."""
        try:
            spec = read(FlagSetSpec, resource.spec)
        except InvalidSpecError as error:
            raise Stalled("InvalidSpec", str(error)) from error
        try:
            outcome = await self._reconcile(resource, spec, now)
        except Setback as setback:
            setback.details = (*setback.details, *self._concerns(resource, now))
            setback.ended = (UNDISPUTED, SOURCE_READY)
            if setback.requeue_after is None:
                setback.requeue_after = self._interval(spec)
            raise
        return replace(outcome, details=(*outcome.details, *self._concerns(resource, now)))

    def _concerns(self, resource: Resource, now: datetime) -> tuple[Condition, ...]:
        """Details that are there only while something is not as it should be."""
        memory = self._memory.get(resource.key)
        drift = () if memory is None else memory.state.dispute.told(now)
        return (*(drift or self._conflict(resource)), *source_health(resource, self.objects))

    def _conflict(self, resource: Resource) -> tuple[Condition, ...]:
        """Another object has the name or the flagSetId of what this one wrote."""
        target = resource.spec.get("target")
        name = target.get("name") if isinstance(target, dict) else None
        written = self.objects.get(
            ObjectKey(configuration.KIND, resource.namespace, str(name or resource.name))
        )
        if written is None or not belongs_to(written, resource.name):
            return ()
        found = find(written.status.get("conditions", ()), UNDISPUTED)
        if found is None:
            return ()
        message = f"{written.key.kind} {written.name}: {found.get('message')}"
        return (Condition(UNDISPUTED, FALSE, str(found.get("reason")), message),)

    def forget(self, key: ObjectKey) -> None:
        """The FlagSet is gone; what it made goes by its owner reference, or stays."""
        self._memory.pop(key, None)

    async def _reconcile(self, resource: Resource, spec: FlagSetSpec, now: datetime) -> Outcome:
        status: dict[str, Any] = {}
        try:
            artifact = source_artifact(resource, spec, self.objects)
            if self.detail is ProvenanceDetail.COMMIT:
                artifact = artifact.without_author()
            require_dependencies(resource, spec, self.objects, artifact)
            status["lastAttemptedRevision"] = artifact.revision
            memory = await self._built(resource, spec, artifact)
        except Setback as setback:
            # What was delivered stays in force, and nobody else's hand gets at it meanwhile.
            setback.status = {**status, **setback.status}
            news, wait = await self._keep(resource, spec, now)
            setback.news = (*setback.news, *news)
            if wait is not None:
                usual = setback.requeue_after or self._interval(spec)
                setback.requeue_after = min(usual, wait)
            raise
        attempt = messages.Attempt(artifact, memory.built.composition, spec.source_ref.kind)
        status |= messages.problems(attempt)
        try:
            news, wait = await self._deliver(resource, spec, memory.state, now)
        except Setback as setback:
            setback.status = {**status, **setback.status}
            raise
        return self._told(resource, spec, memory, attempt, (news, wait), now)

    def _told(
        self,
        resource: Resource,
        spec: FlagSetSpec,
        memory: _Memory,
        attempt: messages.Attempt,
        delivered: tuple[tuple[News, ...], float | None],
        now: datetime,
    ) -> Outcome:
        built, (news, wait) = memory.built, delivered
        interval = self._interval(spec)
        again = interval if wait is None else min(interval, wait)
        if not built.composition.accepted or built.edited:
            self._refuse(resource, built, attempt, news, again)
        target = ObjectKey(configuration.KIND, resource.namespace, spec.target.name or resource.name)
        served, propagated = shown(self.objects.get(target), built.composition.digest)
        status = messages.status(resource.status, attempt, memory.state.manifests, now) | served
        if resource.status.get("digest") != built.composition.digest:
            said = messages.applied(resource.status, attempt)
            news = (*news, News("Applied", said))
        if built.composition.held or built.composition.missing:
            raise Stalled(
                "PartiallyApplied",
                messages.partial(attempt),
                status={"served": None, **status},
                details=propagated,
                news=news,
                requeue_after=again,
            )
        return Outcome(
            message=messages.ready(attempt),
            status=status,
            details=propagated,
            news=news,
            requeue_after=again,
        )

    def _refuse(
        self,
        resource: Resource,
        built: Built,
        attempt: messages.Attempt,
        news: tuple[News, ...],
        again: float,
    ) -> NoReturn:
        """The revision is not delivered. What was delivered before is."""
        served = resource.status.get("lastAppliedRevision", "")
        pending: list[str] | None = None
        if built.removal is not None:
            reason, message = "PruneGuard", messages.guarded(attempt, built.removal, resource, served)
            pending = messages.pending_removals(built.removal)
        elif built.too_large:
            reason, message = "TooLarge", messages.refused(attempt, built.too_large, served)
        elif built.edited:
            reason, message = "LastGoodUnknown", messages.unknown(attempt, built.edited)
        else:
            reason, message = "BuildFailed", messages.refused(attempt, "", served)
        status = {"lastAttemptedRevision": attempt.artifact.revision, **messages.problems(attempt)}
        status["pendingRemovals"] = pending
        raise Stalled(reason, message, status=status, news=news, requeue_after=again)

    async def _built(self, resource: Resource, spec: FlagSetSpec, artifact: ArtifactStatus) -> _Memory:
        generation = (resource.uid, resource.generation)
        accepted = accepted_by_hand(resource, artifact.revision)
        built_from = (artifact.digest, artifact.revision, accepted, *generation)
        memory = self._remembered(resource)
        if memory is not None and memory.built_from == built_from:
            return memory
        archive = await self.artifacts.read(resource.namespace, artifact)
        if memory is not None and memory.state.settled:
            last: LastGood | None = LastGood(memory.built.composition.flag_set)
        else:
            found = written_by(resource, spec, self.objects)
            last = await asyncio.to_thread(last_applied, found, self.objects)
            if last is not None and self.detail is ProvenanceDetail.COMMIT:
                last = replace(last, flag_set=without_author(last.flag_set))
        built = await asyncio.to_thread(self.build, archive, spec, artifact, resource, last)
        state = Delivered(observed(built.manifests, artifact, resource.created, self.objects.get))
        if memory is not None:
            state.taken, state.outdated = memory.state.taken, memory.state.outdated
            state.dispute = memory.state.dispute
        memory = _Memory(built_from, generation, built, state, resource.status.get("digest"))
        if built.manifests:
            self._memory[resource.key] = memory
        return memory

    def _remembered(self, resource: Resource) -> _Memory | None:
        """What was built last, unless another replica has led since: then the cluster knows better. Another
        object of the name has no past.
        """
        memory = self._memory.get(resource.key)
        if memory is None:
            return None
        another = memory.generation[0] != resource.uid
        if another or not memory.holds(resource.status.get("digest")):
            del self._memory[resource.key]
            return None
        return memory

    async def _keep(
        self, resource: Resource, spec: FlagSetSpec, now: datetime
    ) -> tuple[tuple[News, ...], float | None]:
        """Correct drift from what was built last, where the spec is still the one that it was built for."""
        memory = self._remembered(resource)
        if memory is None or memory.generation != (resource.uid, resource.generation):
            return (), None
        return await self._deliver(resource, spec, memory.state, now)

    async def _deliver(
        self, resource: Resource, spec: FlagSetSpec, state: Delivered, now: datetime
    ) -> tuple[tuple[News, ...], float | None]:
        delivery = Delivery(self.objects, self.writer, self.applied)
        return await delivery.deliver(resource, state, prune=spec.prune, now=now)

    def _interval(self, spec: FlagSetSpec) -> float:
        return spec.interval * (1.0 + JITTER * (2.0 * self.random() - 1.0))
