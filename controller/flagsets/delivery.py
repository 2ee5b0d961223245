"""Writes manifests that differ from objects in the cluster, removes outdated objects, and corrects drift."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api import flagset, flagshard
from controller.api.flagset import (
    KIND,
    DriftPolicy,
    FlagSetSpec,
    manager_of,
    owned_by_flag_set,
    proven_writer,
)
from controller.api.flagset_status import FlagSetStatus
from controller.api.meta import ObjectKey, Resource
from controller.api.status import DRIFT_CONTESTED, DRIFT_KEPT, TRUE, Condition
from controller.flagsets.stage import BY_OWNER
from controller.runtime.cache import Cache, at_version
from controller.runtime.event import Occurrence
from controller.runtime.setbacks import Stalled, Waiting
from controller.runtime.shards import WHOLE, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from controller.flagsets.places import Place


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes, in their order."""

    write: tuple[Mapping[str, Any], ...]
    remove: tuple[Resource, ...]
    """Objects to remove at once."""
    outdated: tuple[Resource, ...]
    """Shards of an earlier content, which clients may still be reading."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What an API server made of a manifest: it may drop unknown fields, and a webhook may add some."""

    sent: Mapping[str, Any]
    kept: Mapping[str, Any]
    """The spec as stored; `sent` is that of the manifest."""


def plan(
    wanted: Sequence[Mapping[str, Any]],
    existing: Iterable[Resource],
    *,
    prune: bool,
    taken: Mapping[ObjectKey, Taken] | None = None,
    shard: Shard = WHOLE,
) -> Plan:
    """Compare `wanted` with `existing`: what the FlagSet wrote before, and any object in its place."""
    by_key = {known.key: known for known in existing}
    keys = {ObjectKey.of(manifest) for manifest in wanted}
    write = tuple(
        manifest
        for manifest in wanted
        if (known := by_key.get(key := ObjectKey.of(manifest))) is None
        or not matches(known, manifest, (taken or {}).get(key))
        or _is_misplaced(known, manifest, shard)
    )
    others = [other for key, other in sorted(by_key.items()) if key not in keys and not other.deleting]
    shards = [shard for shard in others if shard.key.kind == flagshard.KIND]
    rest = [other for other in others if other.key.kind != flagshard.KIND]
    # What is left behind stays whole.
    left = frozenset() if prune else frozenset(name for other in rest for name in flagshard.names(other.spec))
    return Plan(
        write=write,
        remove=tuple(rest) if prune else (),
        outdated=tuple(shard for shard in shards if shard.name not in left),
    )


def matches(existing: Resource, manifest: Mapping[str, Any], taken: Taken | None = None) -> bool:
    """Whether an object says all that the manifest says, and in its spec nothing else."""
    meta = manifest["metadata"]
    spec = manifest["spec"]
    owners = meta.get("ownerReferences", [])
    return (
        (existing.spec == spec or (taken is not None and taken.sent == spec and taken.kept == existing.spec))
        and existing.labels.items() >= meta["labels"].items()
        and existing.annotations.items() >= meta.get("annotations", {}).items()
        and {(owner["uid"], owner["kind"]) for owner in owners}
        <= {(owner.get("uid"), owner.get("kind")) for owner in existing.owners}
        and (bool(owners) or not any(owner.get("kind") == flagset.KIND for owner in existing.owners))
    )


def _is_misplaced(existing: Resource, manifest: Mapping[str, Any], shard: Shard) -> bool:
    """Whether another shard would reconcile it."""
    return shard.labels_of(existing.labels) != shard.labels_of(manifest["metadata"]["labels"])


def _with_labels(manifest: Mapping[str, Any], labels: Mapping[str, str]) -> Mapping[str, Any]:
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "labels": {**meta["labels"], **labels}}}


def belongs_to(resource: Resource, name: str) -> bool:
    """Whether the FlagSet `name` wrote it."""
    return flagset.proven_writer(resource) == name


REASON: Final = "DriftContested"
AT_ONCE: Final = 3
"""Corrections without a pause: a person who tries again stops at that."""
CALM: Final = 60.0
"""Seconds in which nothing was to be corrected, though it might have been: the dispute is over."""
_FIRST: Final = 5.0
_MOST: Final = 60.0


@dataclass(slots=True)
class KeptChanges:
    """The changes by others, where the policy keeps them."""

    message: str = ""
    """Empty: nothing was."""

    def occurrences(self, changed: Sequence[str], resource: Resource) -> tuple[Occurrence, ...]:
        """`changed` describes each changed object; an occurrence where the status does not show it yet."""
        self.message = (
            f"{'; '.join(changed)}; it stays so, since spec.driftPolicy is Warn: undo the change, or set "
            "spec.driftPolicy to Correct"
            if changed
            else ""
        )
        if not changed or FlagSetStatus.of(resource).condition(DRIFT_KEPT).message == self.message:
            return ()
        return (Occurrence(DRIFT_KEPT, self.message, warning=True),)

    def conditions(self) -> tuple[Condition, ...]:
        """Return it as a condition of the FlagSet."""
        return (Condition(DRIFT_KEPT, TRUE, DRIFT_KEPT, self.message),) if self.message else ()


@dataclass(slots=True)
class DriftRecord:
    """The recent corrections of one FlagSet."""

    times: int = 0
    last: datetime | None = None
    message: str = ""
    """Names the object and who changes it, as far as known."""

    def pause(self, now: datetime) -> float:
        """Seconds until drift may be corrected."""
        return max(0.0, self._length() - self._since(now))

    def record_correction(self, change: str, now: datetime) -> tuple[Occurrence, ...]:
        """Note that `change` was corrected; returns an occurrence if that starts a dispute."""
        if self.over_in(now) == 0.0:
            self.times = 0
        self.times += 1
        self.last = now
        self.message = (
            f"{change} repeatedly; it is restored at most every {_MOST:.0f} seconds until that ends: "
            "stop what changes it, or change the source"
        )
        return (Occurrence(REASON, self.message, warning=True),) if self.times == AT_ONCE else ()

    def open(self, now: datetime) -> bool:
        """Whether another writer keeps overwriting what we write."""
        return self.times >= AT_ONCE and self.over_in(now) > 0.0

    def over_in(self, now: datetime) -> float:
        """Return the seconds until it is over, if there is no further change."""
        return max(0.0, self._length() + CALM - self._since(now))

    def conditions(self, now: datetime) -> tuple[Condition, ...]:
        """Return it as a condition of the FlagSet."""
        return (Condition(DRIFT_CONTESTED, TRUE, REASON, self.message),) if self.open(now) else ()

    def _length(self) -> float:
        # The exponent is bounded: a dispute may last for months.
        past = min(self.times - AT_ONCE, 10)
        return min(_MOST, _FIRST * 2.0**past) if past >= 0 else 0.0

    def _since(self, now: datetime) -> float:
        # Where the clock was set back, it is unknown: taken for long ago.
        return float("inf") if self.last is None else abs((now - self.last).total_seconds())


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
    server: str = ""
    """Of the `Place` where it is."""
    dispute: DriftRecord = field(default_factory=DriftRecord)
    kept: KeptChanges = field(default_factory=KeptChanges)


@dataclass(frozen=True, slots=True)
class DeliveryWriter:
    """Writes the objects of FlagSets."""

    flag_sets: Cache
    """Of our own cluster."""
    place: Place
    """Where the objects are."""
    shard: Shard = WHOLE
    """What is written gets its labels of the FlagSet."""

    async def deliver(
        self, resource: Resource, state: AppliedObjects, spec: FlagSetSpec, now: datetime
    ) -> tuple[tuple[Occurrence, ...], float | None]:
        """Write `state`; (Events of drift, seconds until there is more to do). Raises Setback."""
        if not state.manifests:
            return (), None
        existing = self._existing_objects(resource, state)
        versions = {known.key: known.resource_version for known in existing}
        labels = self.shard.labels_of(resource.labels)
        wanted = [_with_labels(manifest, labels) for manifest in state.manifests]
        steps = plan(wanted, existing, prune=spec.prune, taken=state.taken, shard=self.shard)
        found = {known.key: known for known in existing}
        for manifest in steps.write:
            known = found.get(ObjectKey.of(manifest))
            if known is not None and _is_misplaced(known, manifest, self.shard):
                # The FlagSet was given to another shard: that is no change by another.
                state.settled = False
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
        missing = self.place.objects.get(key) is None
        body, others = await self.place.writer.apply(
            at_version(manifest, version), manager=manager_of(resource.key)
        )
        written = Resource.of(body)
        # The next reconcile must not read the object as it was: the event of our own write comes later.
        self.place.objects.learn(written)
        state.taken[key] = Taken(manifest["spec"], written.spec)
        if not others and not state.settled:
            return []
        by = f" by {others}" if others else ""
        change = f"was {'removed' if missing else f'changed{by}'}"
        return [_Drift(key, change, written.resource_version)]

    def _change(self, manifest: Mapping[str, Any]) -> str:
        key = ObjectKey.of(manifest)
        change = "removed" if self.place.objects.get(key) is None else "changed by hand"
        return f"{key.kind} {key.name} was {change}"

    def _existing_objects(self, resource: Resource, state: AppliedObjects) -> list[Resource]:
        there = self.place.objects
        owned = {known.key: known for known in there.find(BY_OWNER, resource.namespace, resource.name)}
        wanted = (there.get(ObjectKey.of(manifest)) for manifest in state.manifests)
        return list((owned | {known.key: known for known in wanted if known is not None}).values())

    def _require_not_deleting(self, resource: Resource) -> None:
        """Raise while the FlagSet is being deleted: Kubernetes may be deleting what it wrote."""
        latest = self.flag_sets.get(resource.key)
        if latest is None or latest.uid != resource.uid or latest.deleting:
            raise Waiting("Deleted", "the FlagSet is being deleted")

    def _require_ownership(self, resource: Resource, manifest: Mapping[str, Any]) -> None:
        """Two FlagSets with one target would overwrite each other for ever."""
        existing = self.place.objects.get(ObjectKey.of(manifest))
        owner = "" if existing is None else proven_writer(existing)
        if existing is None or not owner:
            return
        of_other_cluster = bool(self.place.server) and owned_by_flag_set(existing)
        if owner == resource.name and not of_other_cluster:
            return
        of_own_cluster = self.flag_sets.get(ObjectKey(KIND, resource.namespace, owner)) is not None
        if of_own_cluster or of_other_cluster:
            where = f" of cluster {self.place.server}" if of_other_cluster else ""
            raise Stalled(
                "OwnershipConflict",
                f"{existing.key.kind} {existing.name} belongs to FlagSet {owner}{where}; "
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
        await self.place.writer.delete(
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
