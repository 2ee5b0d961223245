"""Reads objects into states of flag sets. For people, nothing else reads what a status says of them. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api import flagoverride, flagset
from controller.api.flagoverride import ACTIVE, FlagOverrideStatus, moment_of
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import FLAG_SOURCE, FLUX_SOURCES, status_of
from controller.api.objects.artifact_status import SourceStatus
from controller.api.objects.conditions import FALSE, READY, STALLED, TRUE
from controller.api.objects.meta import ObjectKey
from controller.api.openfeature import featureflagconfiguration
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus, FeatureFlagStatus
from controller.api.parsing import InvalidTextError
from controller.api.rollouts import flagrollout
from controller.delivery.progress.overrides import names_of, set_name
from controller.delivery.state.candidate_layers import candidate_layers
from controller.delivery.state.digests import Digests
from controller.delivery.state.set_state import (
    Health,
    Newest,
    OverrideLayer,
    RemoteLayer,
    Served,
    SetState,
    Stage,
    Verdict,
    Where,
)
from controller.delivery.state.state_words import served_text
from controller.delivery.state.waits import waits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from controller.api.objects.meta import Resource
    from controller.api.objects.status import Status
    from controller.delivery.state.set_state import Layer

SOURCE_KINDS: Final = frozenset({FLAG_SOURCE.kind, *(type_.kind for type_ in FLUX_SOURCES)})
_DELIVERED: Final = (featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND)
LAYER_KINDS: Final = (flagrollout.KIND, flagoverride.KIND)
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
    keys |= {_target_key(by_key[key]) for key in by_key if key.kind == flagset.KIND}
    states = [read_set(key, by_key, now, where, unknown) for key in sorted(keys)]
    first = {(state.key.namespace, state.key.name): state for state in reversed(states)}
    written = {state.writer: state for state in states if state.writer is not None and state.exists}
    return [
        state
        for state in sorted(first.values(), key=lambda state: (state.key.namespace, state.key.name))
        if state.exists or state.writer not in written
    ]


def read_set(
    key: ObjectKey,
    by_key: Mapping[ObjectKey, Resource],
    now: datetime,
    where: Where = Where.CLUSTER,
    unknown: Collection[str] = (),
) -> SetState:
    """The state of the flag set that one object delivers, be it there or not yet."""
    target = by_key.get(key)
    flag_set = _writer_of(key, target, by_key)
    source_key = None if flag_set is None else flagset.source_key(flag_set)
    source = None if source_key is None else by_key.get(source_key)
    status, set_status = _delivery_status(target), FlagSetStatus.of(flag_set)
    names = {key.name} if target is None else names_of(target)
    names |= set() if flag_set is None else {flag_set.name}
    about = [
        resource
        for resource in by_key.values()
        if resource.key.kind in LAYER_KINDS
        and resource.namespace == key.namespace
        and set_name(resource) in names
        and not resource.deleting
    ]
    rollouts = [resource for resource in about if resource.key.kind == flagrollout.KIND]
    overrides = [resource for resource in about if resource.key.kind == flagoverride.KIND]
    suspended = [held for held in (source, flag_set, *rollouts) if held is not None and held.suspended]
    local = status.local_digest if isinstance(status, ConfigurationStatus) else None
    remote = tuple(_remote_layers(status))
    own, effective = local or status.digest or "", status.digest or ""
    state = SetState(
        key,
        where,
        _newest(source, flag_set, target),
        None if flag_set is None else flag_set.key,
        source_key,
        exists=target is not None,
        processed=target is not None and status.observed_generation == target.generation,
        revision=status.revision or "",
        applied=set_status.last_applied_revision or "",
        good=set_status.last_good_revision or "",
        held=set_status.held,
        history=set_status.history,
        digests=Digests(set_status.digest or "", own, "" if remote else own, effective),
        served=_served(status),
        suspended=tuple(resource.key for resource in suspended),
        unknown=tuple(sorted(unknown)),
    )
    layers: tuple[Layer, ...] = (
        *candidate_layers(key, status.rollouts or (), rollouts),
        *_override_layers(overrides, now),
        *remote,
    )
    state = replace(state, layers=layers, stages=tuple(_stages(source_key, source, flag_set, target, state)))
    present = [resource for resource in (source, flag_set, target) if resource is not None]
    return replace(state, waits=tuple(waits(state, present)))


def _target_key(flag_set: Resource) -> ObjectKey:
    """The object that evaluators follow, of what a FlagSet writes."""
    written = {target.kind for target in FlagSetStatus.of(flag_set).target}
    kind = next((kind for kind in _DELIVERED if kind in written), featureflagconfiguration.KIND)
    return ObjectKey(kind, flag_set.namespace, flagset.target_name(flag_set))


def _writer_of(
    key: ObjectKey, target: Resource | None, by_key: Mapping[ObjectKey, Resource]
) -> Resource | None:
    """The FlagSet that writes the object."""
    if target is not None:
        return by_key.get(flagset.writer_key(target))
    return next(
        (
            resource
            for resource in by_key.values()
            if resource.key.kind == flagset.KIND and _target_key(resource) == key
        ),
        None,
    )


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
        fetched = SourceStatus.of(source).content[0] if source is not None else ""
        if fetched and fetched != revision:
            return Newest(fetched, Verdict.BUILDING, newest.message)
        author = next((entry.author for entry in status.history if entry.revision == revision), None)
        newest = replace(newest, author=author or "", removals=status.pending_removals or ())
    if isinstance(status, FlagSetStatus | FeatureFlagStatus):
        count = status.problem_count or len(status.problems)
        newest = replace(newest, problems=status.problems, problem_count=count)
    return newest


def _verdict(status: Status) -> Verdict:
    reason = status.failure
    if status.is_ready:
        return Verdict.APPLIED
    if reason == "PartiallyApplied":
        return Verdict.PARTLY
    if reason in _GUARDS:
        return Verdict.GUARDED
    if reason in _REFUSALS:
        return Verdict.REFUSED
    return Verdict.UNREADABLE if reason else Verdict.BUILDING


def _served(status: FeatureFlagStatus) -> Served:
    if not isinstance(status, ConfigurationStatus):
        return Served()
    return Served(
        status.served_by or 0,
        status.total,
        status.laggards or (),
        status.delivered or 0,
        status.served_within or "",
    )


def _override_layers(overrides: Iterable[Resource], now: datetime) -> Iterator[OverrideLayer]:
    """Yield the overrides in force, the oldest first."""
    for override in sorted(overrides, key=lambda override: (override.created, override.name)):
        status, spec = FlagOverrideStatus.of(override), override.spec
        if status.state != ACTIVE or _is_over(str(spec.get("expiresAt")), now):
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


def _stages(
    source_key: ObjectKey | None,
    source: Resource | None,
    flag_set: Resource | None,
    target: Resource | None,
    state: SetState,
) -> Iterator[Stage]:
    """Yield the stages that a revision passes, as far as there are any."""
    if source_key is not None:
        name = f"{source_key.kind}/{source_key.name}"
        if source is None:
            yield Stage("Source", name, Health.UNKNOWN, message="it does not exist, or you may not see it")
        else:
            artifact = SourceStatus.of(source).artifact
            revision = ("", "") if artifact is None else (artifact.revision, artifact.last_update_time)
            yield Stage("Source", name, *_health(source, *revision))
    if flag_set is not None:
        applied = next((entry.applied_at or "" for entry in state.history), "")
        yield Stage(
            "Flag set", f"{flag_set.key.kind}/{flag_set.name}", *_health(flag_set, state.applied, applied)
        )
    if target is not None:
        yield Stage("Object", f"{target.key.kind}/{target.name}", *_health(target, state.revision))
    served, what = state.served, state.revision or state.digests.effective
    if target is None or not served.total:
        yield Stage("Evaluators", "", Health.UNKNOWN, message=served_text(served, what or "it"))
        return
    health = Health.READY if not served.lagging else Health.WAITING
    yield Stage("Evaluators", "", health, state.revision, message=served_text(served, what))


def _health(resource: Resource, revision: str = "", since: str = "") -> tuple[Health, str, str, str]:
    """(health, revision, since, message) of the stage of an object."""
    status = status_of(resource)
    ready = status.condition(READY)
    if resource.suspended:
        return Health.SUSPENDED, revision, since, ready.message
    if status.is_ready:
        return Health.READY, revision, since, ""
    return Health.FAILED if status.failure else Health.WAITING, revision, since, ready.message
