"""Writes manifests that differ from the objects in the cluster, and removes outdated objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api import flagshard
from controller.api.flagset import KIND, DriftPolicy, manager_of, proven_writer
from controller.api.objects.meta import ObjectKey, Resource
from controller.flagsets.applying.drift import DriftRecord, Kept
from controller.flagsets.applying.plan import Taken, plan
from controller.flagsets.stage import BY_OWNER
from controller.runtime.event import Occurrence
from controller.runtime.objects.applier import at_version
from controller.runtime.reconciling.setbacks import Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.api.flagset import FlagSetSpec
    from controller.runtime.objects.applier import Applier
    from controller.runtime.objects.cache import Cache

GRACE: Final = 60.0
"""Seconds for which a shard outlives the index that named it."""


class _Drift(NamedTuple):
    """One object that differed, and was corrected."""

    key: ObjectKey
    change: str
    version: str
    """The object's resourceVersion since."""


@dataclass(slots=True)
class AppliedObjects:
    """The objects that one FlagSet has, or shall have, in the cluster."""

    manifests: tuple[dict[str, Any], ...]
    taken: dict[ObjectKey, Taken] = field(default_factory=dict)
    outdated: dict[str, datetime] = field(default_factory=dict)
    """Shards by name, with the time since which no set refers to them."""
    settled: bool = False
    """Whether all of it was seen in the cluster: a later difference is a change by another."""
    dispute: DriftRecord = field(default_factory=DriftRecord)
    kept: Kept = field(default_factory=Kept)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Writes the objects of FlagSets."""

    objects: Cache
    writer: Applier

    async def deliver(
        self, resource: Resource, state: AppliedObjects, spec: FlagSetSpec, now: datetime
    ) -> tuple[tuple[Occurrence, ...], float | None]:
        """Write `state`; (Events of drift, seconds until there is more to do). Raises Setback."""
        if not state.manifests:
            return (), None
        existing = self._existing_objects(resource, state)
        versions = {known.key: known.resource_version for known in existing}
        steps = plan(state.manifests, existing, prune=spec.prune, taken=state.taken)
        for manifest in steps.write:
            self._require_ownership(resource, manifest)
        if state.settled and spec.drift_policy is DriftPolicy.WARN:
            occurrences = state.kept.occurrences(
                [self._change(manifest) for manifest in steps.write], resource
            )
            if steps.write:
                return occurrences, None
        else:
            state.kept.message = ""
        # A new revision is written at once, even during a dispute.
        if steps.write and state.settled and (left := state.dispute.pause(now)) > 0.0:
            return (), left
        settled = state.settled
        drift: list[_Drift] = []
        for manifest in steps.write:
            version = versions.get(ObjectKey.of(manifest), "")
            drift += await self._write(resource, manifest, version, state)
        for unwanted in steps.remove:
            await self._delete(unwanted)
        # What was sent of outdated shards is as large as they are.
        names = {ObjectKey.of(manifest) for manifest in state.manifests}
        state.taken = {key: taken for key, taken in state.taken.items() if key in names}
        state.settled = True
        occurrences = _dispute_events(state.dispute, drift, now) if settled else _correction_events(drift)
        waits = (
            await self._sweep(state, steps.outdated, now),
            state.dispute.over_in(now) if state.dispute.open(now) else None,
        )
        return occurrences, min((seconds for seconds in waits if seconds is not None), default=None)

    async def _write(
        self, resource: Resource, manifest: Mapping[str, Any], version: str, state: AppliedObjects
    ) -> list[_Drift]:
        """Write one object, which was at `version` when that was decided; empty: there was none."""
        self._require_not_deleting(resource)
        key = ObjectKey.of(manifest)
        missing = self.objects.get(key) is None
        body, others = await self.writer.apply(
            at_version(manifest, version), manager=manager_of(resource.key)
        )
        written = Resource.of(body)
        # The next reconcile must not read the object as it was: the event of our own write comes later.
        self.objects.learn(written)
        state.taken[key] = Taken(manifest["spec"], written.spec)
        if not others and not state.settled:
            return []
        by = f" by {others}" if others else ""
        change = f"was {'removed' if missing else f'changed{by}'}"
        return [_Drift(key, change, written.resource_version)]

    def _change(self, manifest: Mapping[str, Any]) -> str:
        key = ObjectKey.of(manifest)
        change = "removed" if self.objects.get(key) is None else "changed by hand"
        return f"{key.kind} {key.name} was {change}"

    def _existing_objects(self, resource: Resource, state: AppliedObjects) -> list[Resource]:
        owned = {known.key: known for known in self.objects.find(BY_OWNER, resource.namespace, resource.name)}
        wanted = (self.objects.get(ObjectKey.of(manifest)) for manifest in state.manifests)
        return list((owned | {known.key: known for known in wanted if known is not None}).values())

    def _require_not_deleting(self, resource: Resource) -> None:
        """Raise while the FlagSet is being deleted: Kubernetes may be deleting what it wrote."""
        latest = self.objects.get(resource.key)
        if latest is None or latest.uid != resource.uid or latest.deleting:
            raise Waiting("Deleted", "the FlagSet is being deleted")

    def _require_ownership(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Two FlagSets with one target would overwrite each other for ever."""
        existing = self.objects.get(ObjectKey.of(manifest))
        owner = "" if existing is None else proven_writer(existing)
        if existing is None or owner in {"", resource.name}:
            return
        if self.objects.get(ObjectKey(KIND, resource.namespace, owner)) is not None:
            raise Stalled(
                "OwnershipConflict",
                f"{existing.key.kind} {existing.name} belongs to FlagSet {owner}; "
                "give one of the two another spec.target.name",
            )

    async def _sweep(
        self, state: AppliedObjects, outdated: tuple[Resource, ...], now: datetime
    ) -> float | None:
        """Remove shards that were unused for a while; returns the seconds until the next may be removed."""
        # Not later than now, should the clock have been set back.
        state.outdated = {shard.name: min(state.outdated.get(shard.name, now), now) for shard in outdated}
        waits = []
        for shard in outdated:
            left = GRACE - (now - state.outdated[shard.name]).total_seconds()
            if left > 0:
                waits.append(left)
            else:
                await self._delete(shard)
        return min(waits, default=None)

    async def _delete(self, existing: Resource) -> None:
        key = existing.key
        version = existing.resource_version
        await self.writer.delete(
            existing.api_version, key.kind, key.namespace, key.name, uid=existing.uid, version=version
        )


def _dispute_events(dispute: DriftRecord, drift: Sequence[_Drift], now: datetime) -> tuple[Occurrence, ...]:
    """Each correction is reported, until there are so many that only the dispute is."""
    if not drift:
        return ()
    known = dispute.open(now)
    key, change, _ = drift[0]
    more = dispute.record_correction(f"{key.kind} {key.name} {change}", now)
    return more if known else (*_correction_events(drift), *more)


def _correction_events(drift: Sequence[_Drift]) -> tuple[Occurrence, ...]:
    """Return one description for each object that people know, and one for all shards."""
    shards = [drifted for drifted in drift if drifted.key.kind == flagshard.KIND]
    others = [drifted for drifted in drift if drifted.key.kind != flagshard.KIND]
    more = f" (and {len(shards) - 1} more)" if len(shards) > 1 else ""
    return tuple(
        Occurrence(
            "DriftCorrected",
            f"{drifted.key.kind} {drifted.key.name}{suffix} {drifted.change}; restored to the source's state",
            version=drifted.version,
        )
        for drifted, suffix in (
            *((drifted, "") for drifted in others),
            *((drifted, more) for drifted in shards[:1]),
        )
    )
