"""FeatureFlagConfiguration and FeatureFlag: their validity, who serves them, who claims their names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.featureflagconfiguration import FLAG_KIND, ConfigurationStatus
from controller.api.flagset import proven_writer
from controller.api.remote_provider import entries_in_force, provider_shards
from controller.api.status import (
    LAST_GOOD_SAVED,
    NAME_CONFLICT,
    OVERRIDE_ACTIVE,
    PROPAGATED,
    REMOTE_FLAGS,
    ROLLOUT_ACTIVE,
    SUPERSEDED,
)
from controller.configurations import validation as name_conflicts
from controller.configurations.propagation import (
    SERVED,
    ObjectPropagation,
    pace,
    propagation,
    propagation_events,
    propagation_of,
    receipts,
)
from controller.configurations.remote_providers import (
    NO_PROVIDER,
    RemoteProviders,
    fetch_conditions,
    fetch_events,
    provider_status,
    with_state,
)
from controller.configurations.validation import ContentVerdict, superseded_condition, validate_and_measure
from controller.delivery.fleet_members import count
from controller.delivery.object_bounds import TOO_MANY_OBJECTS, WRITTEN
from controller.delivery.overrides import BY_WRITER, seconds_to_next_end
from controller.delivery.progress_words import (
    abandonment_events,
    baseline_text,
    override_condition,
    override_events,
    rollout_condition,
)
from controller.delivery.rollouts import PromotedSets, drawn_text, progress_of
from controller.runtime.event import Occurrence
from controller.runtime.helpers import TRUSTED, ForeignTasks, Task
from controller.runtime.result import Done, Result
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.configurations.live_proxies import LiveProxies
    from controller.delivery.claims import ClaimIndex
    from controller.runtime.cache import Cache
    from evaluator.flags.accept import Progress


_DETAILS: Final = (
    PROPAGATED, LAST_GOOD_SAVED, NAME_CONFLICT, REMOTE_FLAGS, OVERRIDE_ACTIVE, ROLLOUT_ACTIVE, SUPERSEDED,
)  # fmt: skip
"""Conditions that are removed once they do not hold."""


@dataclass(slots=True)
class _Kept:
    """What was found of one object's content: receipts come far more often than that changes."""

    content: tuple[Any, ...]
    validation: ContentVerdict
    pace: float
    """Seconds between two writes of who serves it."""
    written_at: datetime | None = None
    propagated: str = ""
    """The digest of the last report that all serve it."""


@dataclass(frozen=True, slots=True)
class ConfigurationReconciler:
    """Judges; changes nothing but status."""

    objects: Cache
    claims: ClaimIndex
    proxies: LiveProxies | None = None
    """The proxies whose reports on who serves an object are summed up. None: the kind has no such reports."""
    remote: RemoteProviders | None = None
    """Fetches the flags of remote providers. None: the kind has none."""
    tasks: ForeignTasks = TRUSTED
    """Read the content of objects."""
    _kept: dict[ObjectKey, _Kept] = field(default_factory=dict)
    _promoted: PromotedSets = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_promoted", PromotedSets(self.objects.get))

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Ask the remote provider if it is time, validate a new content, sum up who serves it, and name
        conflicts, in a condition and in `Ready`.
        """
        before = ConfigurationStatus.of(resource)
        remote = NO_PROVIDER if self.remote is None else await self.remote.follow(resource, now)
        resource = with_state(resource, remote)
        # What is served is digested, as at the proxy.
        progress = progress_of(self.objects, resource, now.timestamp(), self._promoted)
        kept = await self._validate(resource, progress)
        served = await self._propagation_of(resource, kept, now)
        claim_conflicts = self.claims.conflicts_of(resource.key)
        conflicts = [name_conflicts.describe_conflict(conflict, resource.key) for conflict in claim_conflicts]
        outcome = kept.validation.outcome
        if isinstance(outcome, Done):
            # `Ready` stays True: the object itself is valid.
            texts = (text for _, text in conflicts)
            outcome = replace(outcome, message="; ".join((outcome.message, *texts)))
            outcome = _excess(resource, self.objects) or outcome
        status = kept.validation.status | served.status
        propagated = propagation_events(before, status, served.details, kept.propagated)
        if any(detail.reason == SERVED for detail in served.details):
            kept.propagated = status.digest or ""
        overridden = override_condition(kept.validation.overridden)
        rolled_out = rollout_condition(
            kept.validation.rollouts or (),
            _notes(resource, kept.validation, served),
            kept.validation.bucketing_waits,
            {override.flag for override in progress.overrides},
        )
        conflicted = name_conflicts.name_conflict(conflicts)
        waits = served.again, remote.requeue_after, seconds_to_next_end(progress, now.timestamp())
        return Result(
            outcome,
            status=status | provider_status(remote) | _rollout_status(before, kept.validation),
            details=(
                *served.details,
                *conflicted,
                *fetch_conditions(remote),
                *overridden,
                *rolled_out,
                *superseded_condition(resource, self.objects, served.status),
            ),
            ended=_DETAILS,
            events=(
                *name_conflicts.new_conflicts(before, conflicts),
                *propagated,
                *fetch_events(before, remote),
                *override_events(before, overridden),
                *abandonment_events(before, rolled_out),
                *_bucketing_events(before, kept.validation),
            ),
            requeue_after=min(filter(None, waits), default=None),
        )

    @property
    def remembered_objects(self) -> int:
        """The number of objects of which something is kept."""
        return len(self._kept)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a deleted object."""
        self._kept.pop(key, None)
        self._promoted.forget(key)
        if self.remote is not None:
            self.remote.forget(key)

    async def _validate(self, resource: Resource, progress: Progress) -> _Kept:
        part = flagshard.finder(self.objects.get, resource.namespace)
        names = (*flagshard.names(resource.spec), *provider_shards(resource.status))
        parts = [part(name) for name in names]
        versions = [(part.name, part.resource_version) for part in parts if part is not None]
        remote = entries_in_force(resource.status)
        content = (resource.uid, resource.generation, remote, progress, *versions)
        known = self._kept.get(resource.key)
        if known is not None and known.content == content:
            return known
        key = resource.key
        task = Task(key.namespace, f"reading {key}", "make several objects of it")
        shards = dict(zip(names, parts, strict=True))
        size = 0
        try:
            validation, size = await self.tasks.run(task, validate_and_measure, resource, shards, progress)
        except Stalled as stalled:
            validation = ContentVerdict(stalled)
        kept = self._kept[key] = _Kept(content, validation, pace(size))
        if known is None:
            # The leader before has reported what is served by all already.
            status = ConfigurationStatus.of(resource)
            served = status.condition(PROPAGATED).reason == SERVED
            kept.propagated = (status.digest or "") if served else ""
        else:
            kept.written_at, kept.propagated = known.written_at, known.propagated
        return kept

    async def _propagation_of(self, resource: Resource, kept: _Kept, now: datetime) -> ObjectPropagation:
        """Return who serves the object now, or what its status says while it is too soon to write again."""
        status = ConfigurationStatus.of(resource)
        before, new, digest = propagation_of(status), ObjectPropagation(), kept.validation.status.digest or ""
        alive = () if self.proxies is None else self.proxies.alive
        owned_receipts = receipts(resource, self.objects, alive) if digest else []
        if owned_receipts:
            summed = await asyncio.to_thread(count, owned_receipts, digest)
            new = propagation(summed, kept.validation.status.revision or digest, status, now)
        if new == before:
            return new
        if kept.written_at is not None and digest == (status.digest or ""):
            passed = (now - kept.written_at).total_seconds()
            # Negative where the clock was set back.
            if 0.0 <= passed < kept.pace:
                return replace(before, again=kept.pace - passed)
        kept.written_at = now
        return new


def _excess(resource: Resource, objects: Cache) -> Stalled | None:
    """Return the setback of an object that its FlagSet has too many older ones of. It is served."""
    writer = proven_writer(resource)
    front = objects.choose(BY_WRITER, resource.namespace, writer, WRITTEN.front)
    if not writer or not WRITTEN.is_behind(resource, front):
        return None
    remedy = "FlagOverrides and FlagRollouts are not checked against this one; delete one of them"
    return Stalled(TOO_MANY_OBJECTS, WRITTEN.message(writer, remedy))


def _rollout_status(before: ConfigurationStatus, validation: ContentVerdict) -> ConfigurationStatus:
    """Return the entries of rollouts; the present ones stay while the content cannot be read."""
    entries = validation.rollouts
    if entries is None or (not entries and not before.rollouts):
        return ConfigurationStatus()
    return ConfigurationStatus(rollouts=entries or None)


def _notes(resource: Resource, validation: ContentVerdict, served: ObjectPropagation) -> tuple[str, ...]:
    """Return what the condition for rollouts says beside the candidates; empty texts are none."""
    # The controller does not write FeatureFlag objects.
    direct = "Flagd and OpenFeature Operator read this object directly, and serve its own definitions to all"
    drawn = drawn_text(validation.status.bucketing, unknown_followers=bool(served.status.delivered))
    others = direct if resource.key.kind == FLAG_KIND else ""
    return baseline_text(validation.disabled_baselines), others, drawn


def _bucketing_events(before: ConfigurationStatus, validation: ContentVerdict) -> tuple[Occurrence, ...]:
    """Return an Event if another generation of `fractional` than in `before` is served."""
    now = validation.status.bucketing
    if not validation.bucketing_changed or before.bucketing == now:
        return ()
    return (Occurrence("BucketingChanged", f"bucketing changed {validation.bucketing_changed}"),)
