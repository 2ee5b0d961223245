"""FlagSet: builds a flag set from its source's artifact and applies the objects that deliver it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset import FINALIZER, KIND, DriftPolicy, FlagSetSpec, target_name
from controller.api.flagset_status import FlagSetStatus
from controller.api.meta import ACCEPT_REVISION, ObjectKey, Resource, lets_through
from controller.api.status import (
    DRIFT_CONTESTED,
    DRIFT_KEPT,
    FLAGS_EXPIRED,
    NAME_CONFLICT,
    OVERRIDE_ACTIVE,
    ROLLOUT_ACTIVE,
    TRUE,
    Condition,
)
from controller.authoring.flag_life import expiries
from controller.authoring.policy_selection import circumstances_of
from controller.delivery.actions import AcceptRevision
from controller.delivery.progress_words import override_events
from controller.flagsets import messages
from controller.flagsets.applied import (
    LastDelivered,
    last_applied,
    needed_digests,
    needed_sets,
    objects_written_by,
    require_recorded,
)
from controller.flagsets.build import Built, observation_time, with_observation_time
from controller.flagsets.compose import ProvenanceDetail, without_author
from controller.flagsets.deletions import NONE_KEPT, DeletionCheck, KeptFlags, RequestReader
from controller.flagsets.delivery import AppliedObjects, DeliveryWriter, belongs_to
from controller.flagsets.dependencies import (
    CONCERNS,
    Artifacts,
    input_concerns,
    require_dependencies,
    source_artifact,
    source_changes,
)
from controller.flagsets.inputs import NO_INPUTS, InputReader
from controller.flagsets.limited_build import build_in_thread
from controller.flagsets.places import NOT_REMOVED, FlagSetPlaces, Place, RemoteClusters
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Failed, Passing, Setback, Stalled, Waiting
from controller.runtime.shards import WHOLE, Shard
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from controller.api.artifact_status import ArtifactStatus
    from controller.authoring.policies import Circumstances
    from controller.flagsets.preparation import Steps
    from controller.runtime.cache import Applier, Cache
    from evaluator.flags.model import FlagSet

    Build = Callable[
        [
            bytes,
            FlagSetSpec,
            ArtifactStatus,
            Resource,
            LastDelivered | None,
            Steps,
            Sequence[FlagSet],
            Circumstances,
        ],
        Awaitable[Built],
    ]


def written_concerns(flag_set: Resource, place: Place | None) -> tuple[Condition, ...]:
    """The conflict if another object has the name or the flagSetId of what the FlagSet wrote, and overrides
    and rollouts of its flags. What was said stays while the place is not known.
    """
    if place is None:
        before = FlagSetStatus.of(flag_set)
        types = (NAME_CONFLICT, OVERRIDE_ACTIVE, ROLLOUT_ACTIVE)
        return tuple(condition for type_ in types for condition in before.conditions_of(type_))
    key = ObjectKey(featureflagconfiguration.KIND, flag_set.namespace, target_name(flag_set))
    written = place.objects.get(key)
    if written is None or not belongs_to(written, flag_set.name):
        return ()
    status = ConfigurationStatus.of(written)
    name = f"{written.key.kind} {written.name}"
    conflicts = status.conditions_of(NAME_CONFLICT)
    named = (Condition(NAME_CONFLICT, TRUE, c.reason, f"{name}: {c.message}") for c in conflicts)
    repeated = (c for type_ in (OVERRIDE_ACTIVE, ROLLOUT_ACTIVE) for c in status.conditions_of(type_))
    return (*named, *(Condition(c.type, TRUE, c.reason, c.message) for c in repeated))


JITTER: Final = 0.05
"""Greatest random share of the interval, up or down: it spreads FlagSets that were made together."""
_PATIENCE: Final = timedelta(minutes=1)
_AGAIN: Final = 2.0
"""Seconds."""
_DETAILS: Final = (
    DRIFT_CONTESTED, DRIFT_KEPT, FLAGS_EXPIRED, NAME_CONFLICT, OVERRIDE_ACTIVE, ROLLOUT_ACTIVE, *CONCERNS,
)  # fmt: skip
"""What is there only while it holds."""
_LOOK_AGAIN: Final = 30.0
"""Seconds until another cluster is asked again who serves what was written, while not everybody does."""
_LISTED: Final = 10
"""Flags past their date that a message names."""


@dataclass(slots=True)
class Memory:
    """What was built last for one FlagSet, so that it need not be built again."""

    built_from: tuple[Any, ...]
    generation: tuple[str, int]
    around: Circumstances
    built: Built
    state: AppliedObjects
    before: str | None
    """The digest in the status when this was built."""
    over_edit: bool = False
    """Whether the objects in the cluster had been edited when this was built."""
    expiries: tuple[tuple[datetime, str], ...] = ()
    """(From when it is past its date, key) of flags that have a date."""
    kept: KeptFlags = NONE_KEPT
    """Flags that it deletes and that stay."""

    def serves(self, built_from: tuple[Any, ...], around: Circumstances) -> bool:
        """Return whether another build would give the same; only policies ask how the revision comes."""
        judged = self.built.composition.judged or around.given
        return self.built_from == built_from and (self.around == around or not judged)

    def holds(self, digest: str | None) -> bool:
        """Return whether no other replica has led since, by the digest in the status now."""
        mine = self.built.composition.digest
        return digest is None or digest == mine or (not self.state.settled and digest == self.before)


@dataclass(slots=True)
class _SoFar:
    """The results of one reconcile so far: they are reported even if a later step fails."""

    requeue_after: float
    """Seconds."""
    status: FlagSetStatus = field(default_factory=FlagSetStatus)
    events: tuple[Occurrence, ...] = ()
    more_in: float | None = None
    """Seconds until there is more to deliver."""

    @property
    def wait(self) -> float:
        """Return the seconds until the next reconcile."""
        return self.requeue_after if self.more_in is None else min(self.requeue_after, self.more_in)


@dataclass(frozen=True, slots=True)
class FlagSetReconciler:
    """Brings what delivers a flag set to what its source says."""

    objects: Cache
    artifacts: Artifacts
    writer: Callable[[str, str | None], Applier]
    """(namespace, service account) -> who writes with its rights, or with those of the installation."""
    random: Callable[[], float]
    """Returns a random number from 0 to 1."""
    detail: ProvenanceDetail = ProvenanceDetail.FULL
    inputs: InputReader = NO_INPUTS
    home: str = ""
    """Our own namespace, whose FlagPolicies judge the flag sets of others."""
    build: Build = build_in_thread
    requests: RequestReader | None = None
    """Who knows which flags are asked for; None where no FlagSet has a deletion guard."""
    advise: messages.Advise = messages.IN_CLUSTER
    shard: Shard = WHOLE
    clusters: RemoteClusters | None = None
    """Opens those of `spec.kubeConfig`; None where every FlagSet writes to its own cluster."""
    memory: dict[ObjectKey, Memory] = field(default_factory=dict)
    _unread: dict[ObjectKey, datetime] = field(default_factory=dict)
    """For each FlagSet, the time until which an artifact that cannot be read does not count as a failure."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Build, apply, remove what is outdated, and say how it went."""
        spec = spec_of(FlagSetSpec, resource)
        so_far = _SoFar(requeue_after=spec.interval * (1.0 + JITTER * (2.0 * self.random() - 1.0)))
        place: Place | None = None
        try:
            place = await self._placement.open(resource, spec)
            result = await self._reconcile(resource, spec, place, so_far, now)
        except Setback as setback:
            so_far.requeue_after = setback.delay or so_far.requeue_after
            result = Result.of(setback, status=so_far.status, events=so_far.events, requeue_after=so_far.wait)
        details = (*result.details, *self._concerns(resource, place, now))
        before = FlagSetStatus.of(resource)
        events = (*result.events, *source_changes(before, details), *override_events(before, details))
        events += _expiry_events(before, details)
        return replace(result, details=details, ended=_DETAILS, events=events)

    def finalizes(self, resource: Resource) -> bool:
        """Return whether a deleted FlagSet may have objects in another cluster."""
        return FINALIZER in resource.finalizers

    async def finalize(self, resource: Resource, now: datetime) -> Result:
        """Remove what a deleted FlagSet wrote in another cluster."""
        return await self._placement.finalize(resource, now)

    @property
    def _placement(self) -> FlagSetPlaces:
        return FlagSetPlaces(self.objects, self.writer, self.clusters)

    def _concerns(self, resource: Resource, place: Place | None, now: datetime) -> tuple[Condition, ...]:
        memory = self.memory.get(resource.key)
        drift = (
            () if memory is None else (*memory.state.dispute.conditions(now), *memory.state.kept.conditions())
        )
        expired = () if memory is None else _expiry_condition(memory.expiries, now)
        return (*drift, *expired, *written_concerns(resource, place), *input_concerns(resource, self.objects))

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a deleted FlagSet. Its objects go by their owner references, or stay."""
        self.memory.pop(key, None)
        self._unread.pop(key, None)

    async def _reconcile(
        self, resource: Resource, spec: FlagSetSpec, place: Place, so_far: _SoFar, now: datetime
    ) -> Result:
        try:
            artifact = source_artifact(resource, spec, self.objects)
            around = self._circumstances(resource, spec, artifact, now)
            if self.detail is ProvenanceDetail.COMMIT:
                artifact = artifact.without_author()
            await require_dependencies(resource, spec, self.objects, artifact, now)
            so_far.status |= FlagSetStatus(last_attempted_revision=artifact.revision)
            memory = await self._build_or_recall(resource, spec, place, artifact, around, now)
        except Setback:
            # What was delivered stays in force, and changes by others are corrected meanwhile.
            await self._keep(resource, spec, place, so_far, now)
            raise
        again = inf if memory.kept.ask_again is None else (memory.kept.ask_again - now).total_seconds()
        so_far.requeue_after = min(so_far.requeue_after, again, _seconds_to_expiry(memory.expiries, now))
        attempt = messages.Attempt(artifact, memory.built.composition, spec.source_ref.kind, self.advise)
        so_far.status |= messages.problems(attempt)
        if not memory.state.settled and not place.server:
            flag_set = memory.built.composition.flag_set
            await asyncio.to_thread(require_recorded, resource, flag_set, self.objects)
        await self._placement.hold(resource, spec)
        await self._deliver(resource, spec, place, memory.state, so_far, now)
        moved = await self._placement.leave_others(resource, spec, place) if memory.state.manifests else None
        if moved is not None:
            so_far.status |= FlagSetStatus(remote_clusters=moved.clusters or None)
            so_far.events += moved.events
        if not memory.built.composition.accepted or memory.built.edited:
            return _refusal_result(resource, memory.built, attempt, so_far)
        serving = _serving_status(resource, spec, place, memory.built.composition.digest, so_far)
        result = _applied_result(resource, memory, attempt, serving, so_far, now)
        if moved is None or not moved.problem:
            return result
        return replace(result, outcome=Failed(NOT_REMOVED, moved.problem))

    async def _build_or_recall(
        self,
        resource: Resource,
        spec: FlagSetSpec,
        place: Place,
        artifact: ArtifactStatus,
        around: Circumstances,
        now: datetime,
    ) -> Memory:
        generation = (resource.uid, resource.generation)
        accepted = lets_through(resource.annotations.get(ACCEPT_REVISION, ""), artifact.revision)
        inputs = await self.inputs.read(spec, resource.namespace)
        needed = tuple(needed_digests(resource, spec, self.objects))
        content = (artifact.digest, artifact.revision, accepted, inputs.fingerprint, needed)
        built_from = (*content, place.server, *generation)
        memory = self._valid_memory(resource)
        if memory is not None and memory.over_edit and spec.drift_policy is DriftPolicy.WARN:
            # Once the edit is undone, the object shows again which revision it is of.
            memory = None
        check = None if accepted else self._deletion_check(resource, spec, artifact)
        if (
            memory is not None
            and memory.serves(built_from, around)
            and not await _has_changed(memory, check, now)
        ):
            return memory
        others = await self._needed_sets(resource, spec) if needed else ()
        archive = await self._read(resource, spec, artifact, now)
        last = await self._last_delivered(resource, spec, place, memory)
        build = partial(self.build, archive, spec, artifact, resource, last, inputs.steps, others)
        built, kept = await _build_guarded(build, check, around, now)
        state = AppliedObjects(
            with_observation_time(built.manifests, artifact, resource.created, place.objects.get),
            server=place.server,
        )
        if memory is not None:
            state.taken, state.outdated = memory.state.taken, memory.state.outdated
            state.dispute, state.kept = memory.state.dispute, memory.state.kept
        if spec.drift_policy is DriftPolicy.WARN:
            state.settled = _was_applied(resource, memory, built, state)
        memory = Memory(built_from, generation, around, built, state, FlagSetStatus.of(resource).digest)
        memory.over_edit = last is not None and bool(last.edited)
        memory.expiries, memory.kept = expiries(built.composition.flag_set), kept
        if built.manifests:
            self.memory[resource.key] = memory
        return memory

    async def _last_delivered(
        self, resource: Resource, spec: FlagSetSpec, place: Place, memory: Memory | None
    ) -> LastDelivered | None:
        if memory is not None and memory.state.settled:
            return LastDelivered(memory.built.composition.flag_set)
        written = objects_written_by(resource, spec, place.objects)
        last = await asyncio.to_thread(last_applied, written, place.objects)
        if last is not None and self.detail is ProvenanceDetail.COMMIT:
            return replace(last, flag_set=without_author(last.flag_set))
        return last

    def _deletion_check(
        self, resource: Resource, spec: FlagSetSpec, artifact: ArtifactStatus
    ) -> DeletionCheck | None:
        if spec.deletion_guard is None or self.requests is None:
            return None
        override = self.advise(AcceptRevision(resource.key, artifact.revision))
        return DeletionCheck(
            self.requests, resource.namespace, spec.deletion_guard, override, max(60.0, spec.interval)
        )

    async def _needed_sets(self, resource: Resource, spec: FlagSetSpec) -> tuple[FlagSet, ...]:
        keys = {ObjectKey(KIND, resource.namespace, dependency.name) for dependency in spec.depends_on}
        made = [self.memory[key].built.composition for key in keys if key in self.memory]
        built = {composition.digest: composition.flag_set for composition in made}
        return await asyncio.to_thread(needed_sets, resource, spec, self.objects, built)

    def _circumstances(
        self, resource: Resource, spec: FlagSetSpec, artifact: ArtifactStatus, now: datetime
    ) -> Circumstances:
        """How the revision comes: verdicts on it stay as they are while time passes."""
        names = {resource.name, spec.target.name or resource.name}
        around = circumstances_of(self.objects, resource, names, self.home, now)
        observed = parse_time(observation_time(artifact, resource.created)) or parse_time(resource.created)
        return around._replace(now=observed or now, author=artifact.author, signer=artifact.verified_by)

    async def _read(
        self, resource: Resource, spec: FlagSetSpec, artifact: ArtifactStatus, now: datetime
    ) -> bytes:
        """The archive. Waits for a known revision: its source stores it again. Raises Setback."""
        try:
            archive = await self.artifacts.read(spec.source_ref.namespace or resource.namespace, artifact)
        except (Waiting, Failed) as setback:
            known = FlagSetStatus.of(resource).last_attempted_revision == artifact.revision
            if now < self._unread.setdefault(resource.key, now + _PATIENCE if known else now):
                raise Passing(setback.reason, setback.message, delay=_AGAIN) from setback
            raise
        self._unread.pop(resource.key, None)
        return archive

    def _valid_memory(self, resource: Resource) -> Memory | None:
        """What was built last for this very object, unless another replica has led since."""
        memory = self.memory.get(resource.key)
        if memory is None:
            return None
        another = memory.generation[0] != resource.uid
        if another or not memory.holds(FlagSetStatus.of(resource).digest):
            del self.memory[resource.key]
            return None
        return memory

    async def _keep(
        self, resource: Resource, spec: FlagSetSpec, place: Place, so_far: _SoFar, now: datetime
    ) -> None:
        """Correct drift from what was built last, where the spec is still the one that it was built for."""
        memory = self._valid_memory(resource)
        if memory is None or memory.generation != (resource.uid, resource.generation):
            return
        if memory.state.server == place.server:
            await self._deliver(resource, spec, place, memory.state, so_far, now)

    async def _deliver(
        self,
        resource: Resource,
        spec: FlagSetSpec,
        place: Place,
        state: AppliedObjects,
        so_far: _SoFar,
        now: datetime,
    ) -> None:
        # The controllers of another cluster divide its objects by labels of their own.
        delivery = DeliveryWriter(self.objects, place, WHOLE if place.server else self.shard)
        so_far.events, so_far.more_in = await delivery.deliver(resource, state, spec, now)


def _serving_status(
    resource: Resource, spec: FlagSetSpec, place: Place, digest: str, so_far: _SoFar
) -> tuple[FlagSetStatus, tuple[Condition, ...]]:
    """(fields, conditions) that say who serves what was applied."""
    name = spec.target.name or resource.name
    target = place.objects.get(ObjectKey(featureflagconfiguration.KIND, resource.namespace, name))
    served, propagated = messages.serving_status(target, digest, FlagSetStatus.of(resource))
    if not place.server:
        return served, propagated
    if not propagated or any(condition.status != TRUE for condition in propagated):
        # No watch tells when evaluators have it.
        so_far.requeue_after = min(so_far.requeue_after, _LOOK_AGAIN)
    return served, messages.seen_in(place.server, propagated, spec.interval)


def _applied_result(
    resource: Resource,
    memory: Memory,
    attempt: messages.Attempt,
    serving: tuple[FlagSetStatus, tuple[Condition, ...]],
    so_far: _SoFar,
    now: datetime,
) -> Result:
    made = memory.built.composition
    before = FlagSetStatus.of(resource)
    served, propagated = serving
    events = so_far.events
    if before.digest != made.digest:
        more = messages.more(attempt, memory.built)
        words = messages.message_of_apply(before, attempt)
        events += (Occurrence("Applied", words, metadata=more, flags=made.changed.keys),)
    outcome: Done | Setback = Done(messages.ready(attempt))
    if made.held or made.missing:
        outcome = Stalled("PartiallyApplied", messages.message_of_partial(attempt))
        served = FlagSetStatus(served=None) | served
    return Result(
        outcome,
        status=so_far.status | messages.status(before, attempt, memory.state.manifests, now) | served,
        details=propagated,
        events=events,
        requeue_after=so_far.wait,
    )


async def _build_guarded(
    build: Callable[[Circumstances], Awaitable[Built]],
    check: DeletionCheck | None,
    around: Circumstances,
    now: datetime,
) -> tuple[Built, KeptFlags]:
    """Build, and again with the flags that stay although the revision deletes them."""
    built = await build(around)
    if check is None or not built.composition.accepted:
        return built, NONE_KEPT
    kept = await check.kept(built.composition.changed.removed, now)
    if kept.messages:
        built = await build(around._replace(kept=kept.messages))
    return built, kept


async def _has_changed(memory: Memory, check: DeletionCheck | None, now: datetime) -> bool:
    """Whether flags that stayed are asked for no longer, or it is known now whether they are."""
    again = memory.kept.ask_again
    if check is None or again is None or now < again:
        return False
    kept = await check.kept(memory.kept.deleted, now)
    if not kept.stays(memory.kept):
        return True
    memory.kept = replace(memory.kept, ask_again=kept.ask_again)
    return False


def _expiry_condition(dates: Sequence[tuple[datetime, str]], now: datetime) -> tuple[Condition, ...]:
    keys = [key for moment, key in dates if moment <= now]
    if not keys:
        return ()
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    message = f"past metadata.expires and served as before: {', '.join(keys[:_LISTED])}{more}"
    return (Condition(FLAGS_EXPIRED, TRUE, "PastDate", message),)


def _seconds_to_expiry(dates: Sequence[tuple[datetime, str]], now: datetime) -> float:
    return next(((moment - now).total_seconds() for moment, _ in dates if moment > now), inf)


def _expiry_events(before: FlagSetStatus, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """An Event once other flags are past their date than in the status before."""
    known = before.condition(FLAGS_EXPIRED).message
    now = next((detail.message for detail in details if detail.type == FLAGS_EXPIRED), "")
    if now:
        same = known and now.startswith(known.removesuffix("…"))
        return () if same else (Occurrence(FLAGS_EXPIRED, now, warning=True),)
    return (Occurrence("FlagsRenewed", "no flag is past its date any more", ends=True),) if known else ()


def _was_applied(resource: Resource, before: Memory | None, built: Built, state: AppliedObjects) -> bool:
    """Whether these manifests were written before, so that a difference is a change by another."""
    if before is not None:
        known = before.state
        return known.settled and (known.manifests, known.server) == (state.manifests, state.server)
    # Another process wrote it.
    status = FlagSetStatus.of(resource)
    servers = {cluster.server for cluster in status.remote_clusters or ()}
    if bool(state.server) != bool(servers) or (servers and state.server not in servers):
        return False
    return status.observed_generation == resource.generation and status.digest == built.composition.digest


def _refusal_result(resource: Resource, built: Built, attempt: messages.Attempt, so_far: _SoFar) -> Result:
    served = FlagSetStatus.of(resource).last_applied_revision or ""
    pending: tuple[str, ...] | None = None
    if built.removal is not None:
        reason, message = "PruneGuard", messages.message_of_guard(attempt, built.removal, resource, served)
        pending = messages.pending_removals(built.removal)
    elif built.too_large:
        reason, message = "TooLarge", messages.message_of_refusal(attempt, built.too_large, served)
    elif built.edited:
        reason, message = "LastGoodUnknown", messages.message_of_unknown(attempt, built.edited)
    else:
        reason, message = "BuildFailed", messages.message_of_refusal(attempt, "", served)
    status = so_far.status | FlagSetStatus(pending_removals=pending)
    return Result.of(Stalled(reason, message), status=status, events=so_far.events, requeue_after=so_far.wait)
