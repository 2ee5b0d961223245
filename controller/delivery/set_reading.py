"""Reads objects into states of flag sets. For people, nothing else reads statuses of sets. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagoverride, flagreceipt, flagrollout, flagset
from controller.api.artifact_status import ArtifactStatus, SourceStatus
from controller.api.featureflagconfiguration import ConfigurationStatus, FeatureFlagStatus
from controller.api.flagoverride import ACTIVE, FlagOverrideStatus, moment_of
from controller.api.flagreceipt import OBSERVED_AT, FlagReceiptStatus
from controller.api.flagset_status import FlagSetStatus
from controller.api.flagsource import source_address
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey, Resource
from controller.api.parsing import InvalidTextError
from controller.api.status import FALSE, OVERRIDE_ACTIVE, READY, ROLLOUT_ACTIVE, STALLED, TRUE, Status
from controller.delivery.digests import Digests
from controller.delivery.overrides import names_of, set_name
from controller.delivery.reach import waits
from controller.delivery.rollout_state import candidate_layers
from controller.delivery.set_state import (
    Layer,
    Newest,
    OverrideLayer,
    RemoteLayer,
    Served,
    SetState,
    Stage,
    StageHealth,
    ToldLayer,
    Verdict,
    Where,
)
from controller.delivery.state_words import served_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime


_MISSING: Final = "it does not exist, or you may not see it"


def stages_of(
    state: SetState,
    source: Resource | None,
    flag_set: Resource | None,
    target: Resource | None,
    receipts: Iterable[Resource],
) -> Iterator[Stage]:
    """Yield the stages that a revision passes, as far as there are any. `receipts`: of the object, as far as
    they were read.
    """
    if state.source is not None:
        yield _source_stage(state.source, source)
    if flag_set is not None:
        applied = next((entry.applied_at or "" for entry in state.history), "")
        name = f"{flag_set.key.kind}/{flag_set.name}"
        yield Stage("Flag set", name, *_health(flag_set, state.applied, applied))
    # In local mode the object is an inner one: nobody wrote it, and the evaluator is this process.
    if target is not None and state.where is Where.CLUSTER:
        yield Stage("Object", f"{target.key.kind}/{target.name}", *_health(target, state.revision))
        for receipt in sorted(receipts, key=lambda receipt: flagreceipt.pair_of(receipt)[1]):
            yield _proxy_stage(state, receipt)
    if state.cluster:
        name = f"{state.key.kind}/{state.key.name} in {state.cluster}"
        yield Stage("Object", name, StageHealth.READY, state.revision)
    served, what = state.served, state.revision or state.digests.effective
    if not (target or state.cluster) or not served.total:
        yield Stage("Evaluators", "", StageHealth.UNKNOWN, message=served_text(served, what or "it"))
        return
    health = StageHealth.READY if not served.lagging else StageHealth.WAITING
    yield Stage("Evaluators", "", health, state.revision, message=served_text(served, what))


def artifact_of(source: Resource | None) -> ArtifactStatus | None:
    """The artifact of a source; None where it has none, and for an object of another kind."""
    status = None if source is None else status_of(source)
    return status.artifact if isinstance(status, SourceStatus) else None


def _source_stage(key: ObjectKey, source: Resource | None) -> Stage:
    name = f"{key.kind}/{key.name}"
    if source is None:
        return Stage("Source", name, StageHealth.UNKNOWN, message=_MISSING)
    artifact = artifact_of(source)
    revision = ("", "") if artifact is None else (artifact.revision, artifact.last_update_time)
    return Stage("Source", name, *_health(source, *revision))


def _proxy_stage(state: SetState, receipt: Resource) -> Stage:
    """What one proxy delivers, and who serves that."""
    status = FlagReceiptStatus.of(receipt)
    current = sum(group.count for group in status.groups if group.digest == status.digest)
    total = sum(group.count for group in status.groups) + status.silent
    newest = state.digests.is_effective(status.digest)
    revision = next((group.revision or "" for group in status.groups if group.digest == status.digest), "")
    words = f"{current} of {total} evaluators serve what it delivers"
    if status.delivered:
        words += f"; {status.delivered} streams of others"
    return Stage(
        "Proxy",
        flagreceipt.pair_of(receipt)[1],
        StageHealth.READY if newest else StageHealth.WAITING,
        revision or (state.revision if newest else ""),
        status.observed_at or "",
        words,
    )


def _health(resource: Resource, revision: str = "", since: str = "") -> tuple[StageHealth, str, str, str]:
    """(health, revision, since, message) of the stage of an object."""
    status = status_of(resource)
    ready = status.condition(READY)
    if resource.suspended:
        return StageHealth.SUSPENDED, revision, since, ready.message
    if status.is_ready:
        return StageHealth.READY, revision, since, ""
    return StageHealth.FAILED if status.failure else StageHealth.WAITING, revision, since, ready.message


_DELIVERED: Final = (featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND)
LAYER_KINDS: Final = (flagrollout.KIND, flagoverride.KIND)
STATE_KINDS: Final = (flagset.KIND, *_DELIVERED, *LAYER_KINDS)
"""The kinds that the state of a set is read from, besides sources."""
_GUARDS: Final = frozenset({"PruneGuard", "HistoryRewritten"})
_REFUSALS: Final = frozenset({"BuildFailed", "TooLarge", "LastGoodUnknown", "InvalidFlags", "InvalidSpec"})


def read_sets(
    objects: Iterable[Resource], now: datetime, where: Where = Where.CLUSTER, unknown: Collection[str] = ()
) -> list[SetState]:
    """The state of each flag set among `objects`, by the name of the object that evaluators follow: of a
    FlagSet that writes both kinds, the FeatureFlagConfiguration. `unknown`: kinds that could not be read.
    """
    by_key = {resource.key: resource for resource in objects}
    keys = {key for key in by_key if key.kind in _DELIVERED}
    keys |= {delivered_key(by_key[key]) for key in by_key if key.kind == flagset.KIND}
    surroundings = _Surroundings(by_key)
    states = [_read_set(key, surroundings, now, where, unknown) for key in sorted(keys)]
    first = {(state.key.namespace, state.key.name): state for state in reversed(states)}
    written = {state.writer: state for state in states if state.writer is not None and state.exists}
    return [
        state
        for state in sorted(first.values(), key=lambda state: (state.key.namespace, state.key.name))
        if state.exists or state.writer not in written
    ]


def by_member(states: Iterable[SetState]) -> dict[ObjectKey, SetState]:
    """The states by the object with the flags, and by the FlagSet that writes it."""
    states = [*states]
    written = {state.writer: state for state in states if state.writer is not None and not state.outdated}
    return written | {state.key: state for state in states}


def set_named(states: Iterable[SetState], kind: str, name: str) -> SetState | None:
    """The state that the name of a FlagSet means, or of an object with flags, by its kind. An empty kind is
    that of a reference, which may mean either: a FlagSet first.
    """
    states = [*states]
    written = (state for state in states if state.writer is not None and not state.outdated)
    by_writer = next((state for state in written if state.writer and state.writer.name == name), None)
    if by_writer is not None and kind in {"", flagset.KIND}:
        return by_writer
    return next((state for state in states if state.key.name == name and kind in {"", state.key.kind}), None)


def read_set(
    key: ObjectKey,
    by_key: Mapping[ObjectKey, Resource],
    now: datetime,
    where: Where = Where.CLUSTER,
    unknown: Collection[str] = (),
) -> SetState:
    """The state of the flag set that one object delivers, be it there or not yet."""
    return _read_set(key, _Surroundings(by_key), now, where, unknown)


class _Surroundings:
    """Objects by what they are about."""

    def __init__(self, by_key: Mapping[ObjectKey, Resource]) -> None:
        self.by_key = by_key
        self._writers: dict[ObjectKey, Resource] = {}
        self._about: dict[tuple[str, str, str], list[Resource]] = {}
        for resource in by_key.values():
            if resource.key.kind == flagset.KIND:
                self._writers.setdefault(delivered_key(resource), resource)
            elif resource.key.kind in LAYER_KINDS and not resource.deleting:
                self._add(resource, set_name(resource))
            elif resource.key.kind == flagreceipt.KIND:
                self._add(resource, flagreceipt.pair_of(resource)[0])

    def _add(self, resource: Resource, name: str) -> None:
        self._about.setdefault((resource.key.kind, resource.namespace, name), []).append(resource)

    def about(self, kind: str, namespace: str, names: Iterable[str]) -> list[Resource]:
        """The objects of a kind about what has one of these names."""
        return [one for name in sorted(names) for one in self._about.get((kind, namespace, name), ())]

    def writer_of(self, key: ObjectKey) -> Resource | None:
        """The FlagSet that writes an object, or is to write it."""
        target = self.by_key.get(key)
        return self._writers.get(key) if target is None else self.by_key.get(flagset.writer_key(target))


def _read_set(
    key: ObjectKey, surroundings: _Surroundings, now: datetime, where: Where, unknown: Collection[str]
) -> SetState:
    by_key = surroundings.by_key
    target, flag_set = by_key.get(key), surroundings.writer_of(key)
    source_key = None if flag_set is None else flagset.source_key(flag_set)
    source = None if source_key is None else by_key.get(source_key)
    status, set_status = _delivery_status(target), FlagSetStatus.of(flag_set)
    names = {key.name} if target is None else names_of(target)
    names |= set() if flag_set is None else {flag_set.name}
    rollouts = surroundings.about(flagrollout.KIND, key.namespace, names)
    overrides = surroundings.about(flagoverride.KIND, key.namespace, names)
    receipts = surroundings.about(flagreceipt.KIND, key.namespace, (key.name,))
    cluster = "" if target is not None else _other_cluster(flag_set)
    suspended = [held for held in (source, flag_set, *rollouts) if held is not None and held.suspended]
    remote = tuple(_remote_layers(status))
    own, effective = status.own_digest, status.digest or ""
    if cluster:
        own = effective = set_status.digest or ""
    state = SetState(
        key,
        where,
        _newest(source, flag_set, target),
        None if flag_set is None else flag_set.key,
        source_key,
        "" if source is None else source_address(source) or "",
        exists=target is not None or bool(cluster),
        cluster=cluster,
        outdated=flag_set is not None and flagset.target_name(flag_set) != key.name,
        processed=bool(cluster) or (target is not None and status.observed_generation == target.generation),
        revision=(set_status.last_applied_revision if cluster else status.revision) or "",
        applied=set_status.last_applied_revision or "",
        good=set_status.last_good_revision or "",
        held=set_status.held,
        flags=status.flags if target is not None else set_status.flags,
        history=set_status.history,
        digests=Digests(set_status.digest or "", own, "" if remote else own, effective),
        served=_served_counts(status if target is not None else set_status, target),
        suspended=tuple(resource.key for resource in suspended),
        unknown=tuple(sorted(unknown)),
    )
    layers: tuple[Layer, ...] = (
        *candidate_layers(key, status.rollouts or (), rollouts),
        *_override_layers(overrides, now),
        *_told_layers(status if target is not None else set_status, key.kind, unknown),
        *remote,
    )
    state = replace(state, layers=layers)
    state = replace(state, stages=tuple(stages_of(state, source, flag_set, target, receipts)))
    present = [*filter(None, (source, flag_set, target, *rollouts, *overrides))]
    state = replace(state, objects=tuple(resource.key for resource in present))
    return replace(state, waits=tuple(waits(state, present)))


def _other_cluster(flag_set: Resource | None) -> str:
    """The API server of another cluster that has what a FlagSet applied; empty: none has."""
    status = FlagSetStatus.of(flag_set)
    servers = [cluster.server for cluster in status.remote_clusters or ()]
    return servers[0] if servers and status.digest and flagset.delivers_elsewhere(flag_set) else ""


def delivered_key(flag_set: Resource) -> ObjectKey:
    """The object that evaluators follow, of what a FlagSet writes."""
    written = {target.kind for target in FlagSetStatus.of(flag_set).target}
    kind = next((kind for kind in _DELIVERED if kind in written), featureflagconfiguration.KIND)
    return ObjectKey(kind, flag_set.namespace, flagset.target_name(flag_set))


def _delivery_status(target: Resource | None) -> FeatureFlagStatus:
    if target is not None and target.key.kind == featureflagconfiguration.FLAG_KIND:
        return FeatureFlagStatus.of(target)
    return ConfigurationStatus.of(target)


def _newest(source: Resource | None, flag_set: Resource | None, target: Resource | None) -> Newest:
    """What became of the newest revision, by whoever judged it: the FlagSet, or else the object."""
    judge = target if flag_set is None else flag_set
    if judge is None:
        return Newest("", Verdict.BUILDING)
    status = status_of(judge)
    ready, revision = status.condition(READY), status.content[0]
    judged = status.observed_generation == judge.generation
    newest = Newest(
        revision,
        _verdict(status) if judged else Verdict.BUILDING,
        ready.message if ready.status == FALSE else "",
        blocked=judged and status.condition(STALLED).status == TRUE,
    )
    if isinstance(status, FlagSetStatus):
        artifact = artifact_of(source)
        if artifact is not None and artifact.revision != revision:
            return _with_times(Newest(artifact.revision, Verdict.BUILDING, newest.message), artifact)
        author = next((entry.author for entry in status.history if entry.revision == revision), None)
        newest = replace(newest, author=author or "", removals=status.pending_removals or ())
        newest = newest if artifact is None else _with_times(newest, artifact)
    if isinstance(status, FlagSetStatus | FeatureFlagStatus):
        count = status.problem_count or len(status.problems)
        newest = replace(newest, problems=status.problems, problem_count=count)
    return newest


def _with_times(newest: Newest, artifact: ArtifactStatus) -> Newest:
    """The revision of an artifact with the times that the artifact tells."""
    return replace(
        newest,
        committed_at=artifact.committed_at or "",
        seen_at=artifact.metadata.get(OBSERVED_AT, ""),
        stored_at=artifact.last_update_time or "",
    )


def _verdict(status: Status) -> Verdict:
    reason = status.failure
    if status.is_ready:
        return Verdict.APPLIED
    # Of an object with bad flags, the good ones are delivered, unless there are none: then it has no digest.
    if reason == "PartiallyApplied" or (reason == "InvalidFlags" and status.content[1]):
        return Verdict.PARTLY
    if reason in _GUARDS:
        return Verdict.GUARDED
    if reason in _REFUSALS:
        return Verdict.REFUSED
    return Verdict.UNREADABLE if reason else Verdict.BUILDING


def _served_counts(status: FeatureFlagStatus | FlagSetStatus, target: Resource | None) -> Served:
    if target is None or not isinstance(status, ConfigurationStatus):
        # The status of a FlagSet or a FeatureFlag has the two numbers as one text.
        count, _, total = (status.served or "").partition("/")
        return Served(int(count), int(total)) if count.isdecimal() and total.isdecimal() else Served()
    return Served(
        status.served_by or 0,
        status.total,
        status.laggards or (),
        status.delivered or 0,
        target.annotations.get(OBSERVED_AT, ""),
        status.served_within or "",
    )


def _override_layers(overrides: Iterable[Resource], now: datetime) -> Iterator[OverrideLayer]:
    """Yield the overrides in force, the oldest first."""
    for override in sorted(overrides, key=lambda override: (override.created, override.name)):
        status, spec = FlagOverrideStatus.of(override), override.spec
        if status.state != ACTIVE or ("expiresAt" in spec and _is_over(str(spec["expiresAt"]), now)):
            continue
        yield OverrideLayer(
            override.key,
            str(spec.get("flag", "")),
            None if spec.get("disabled") else str(spec.get("variant", "")),
            spec.get("audience") is not None,
            str(spec.get("expiresAt", "")),
            str(spec.get("reason", "")),
            override.annotations.get(flagoverride.SET_BY, ""),
            status.hides or "",
        )


def _told_layers(status: Status, kind: str, unknown: Collection[str]) -> Iterator[ToldLayer]:
    """Yield what conditions tell of overrides and rollouts that are not known: the status of the object has
    the rollouts.
    """
    known_by = {OVERRIDE_ACTIVE: flagoverride.KIND, ROLLOUT_ACTIVE: kind}
    for condition in status.conditions:
        if known_by.get(condition.type) in unknown:
            yield ToldLayer(condition.message)


def _is_over(end: str, now: datetime) -> bool:
    try:
        return moment_of(end) <= now
    except InvalidTextError:
        return True


def _remote_layers(status: FeatureFlagStatus) -> Iterator[RemoteLayer]:
    entries = status.providers if isinstance(status, ConfigurationStatus) else None
    for entry in entries or ():
        yield RemoteLayer(
            entry.name, entry.flags or 0, entry.version or "", entry.stale_since or "", entry.message or ""
        )
