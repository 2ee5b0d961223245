"""What wakes the reconciler of FlagSet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flaggrant, flagpolicy, flagrollout, flagset, flagshard
from controller.api.artifact_status import SourceStatus
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset import list_items, source_key, target_name
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import CONFIG_MAP, FLAG_SET, SECRET, status_of
from controller.api.meta import ObjectKey, Resource, secret_names, version_of
from controller.api.rollout_status import FlagRolloutStatus
from controller.api.status import (
    FALSE,
    NAME_CONFLICT,
    OVERRIDE_ACTIVE,
    PROPAGATED,
    READY,
    ROLLOUT_ACTIVE,
    STALLED,
)
from controller.delivery.overrides import FLAG_KINDS, set_name, targets_of
from controller.delivery.rollouts import PROGRESS_INDEXES, rollouts_for, rollouts_naming
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.watches import Reconciles, Watch, keys_listed_by
from evaluator.flags.model import PROVENANCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator


_FLAG_SET_ONLY: Final = frozenset({flagset.KIND})
_DEPENDENCIES: Final = frozenset({flagset.KIND, *flagset.SOURCE_API})
_WRITTEN: Final = frozenset(
    {featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND, flagshard.KIND}
)


def source_name(kind: str, name: str) -> str:
    """Return the name under which `BY_SOURCE` lists a source."""
    return f"{kind}/{name}"


def _name_of(changed: Resource) -> str:
    return source_name(changed.key.kind, changed.name)


def _source_of(flag_set: Resource) -> Iterator[str]:
    key = source_key(flag_set)
    if key is not None and key.namespace == flag_set.namespace:
        yield source_name(key.kind, key.name)


def _foreign_source_of(flag_set: Resource) -> Iterator[str]:
    """The source in another namespace, and that namespace, whose grants decide."""
    key = source_key(flag_set)
    if key is not None and key.namespace != flag_set.namespace:
        yield str(key)
        yield key.namespace


def _dependencies(flag_set: Resource, *, asking: bool) -> Iterator[str]:
    """Return dependencies' names as in `source_name`; with `asking`, of those that a `readyExpr` reads."""
    for reference in list_items(flag_set, "dependsOn"):
        if not asking or reference.get("readyExpr") is not None:
            yield source_name(str(reference.get("kind") or flagset.KIND), str(reference.get("name")))


def _substitutes(flag_set: Resource, kind: str) -> Iterator[str]:
    references = list_items(flag_set, "substituteFrom")
    return (str(reference.get("name")) for reference in references if reference.get("kind") == kind)


def _secrets_of(flag_set: Resource) -> Iterator[str]:
    yield from _substitutes(flag_set, SECRET.kind)
    yield from secret_names(flag_set.spec.get("decryption"))
    yield from secret_names(flag_set.spec.get("kubeConfig"))


def _config_maps_of(flag_set: Resource) -> Iterator[str]:
    yield from _substitutes(flag_set, CONFIG_MAP.kind)
    given = flag_set.spec.get("kubeConfig")
    reference = given.get("configMapRef") if isinstance(given, dict) else None
    if isinstance(reference, dict):
        yield str(reference.get("name"))


def _owner_of(resource: Resource | None) -> str | None:
    return (flagset.proven_writer(resource) or None) if resource is not None else None


def _label_of(resource: Resource | None) -> str | None:
    return resource.labels.get(flagset.LABEL) if resource is not None else None


BY_SOURCE: Final = Index("FlagSet by source", _FLAG_SET_ONLY, _source_of)
BY_FOREIGN_SOURCE: Final = Index(
    "FlagSet by source elsewhere", _FLAG_SET_ONLY, _foreign_source_of, everywhere=True
)
BY_DEPENDENCY: Final = Index(
    "FlagSet by dependency", _FLAG_SET_ONLY, lambda flag_set: _dependencies(flag_set, asking=False)
)
BY_QUESTION: Final = Index(
    "FlagSet by dependency of an expression",
    _FLAG_SET_ONLY,
    lambda flag_set: _dependencies(flag_set, asking=True),
)
BY_TARGET: Final = Index("FlagSet by target", _FLAG_SET_ONLY, lambda flag_set: (target_name(flag_set),))
BY_SECRET: Final = Index("FlagSet by Secret", _FLAG_SET_ONLY, _secrets_of)
BY_CONFIG_MAP: Final = Index("FlagSet by ConfigMap", _FLAG_SET_ONLY, _config_maps_of)
BY_OWNER: Final = Index("objects by FlagSet", _WRITTEN, lambda resource: filter(None, (_owner_of(resource),)))


def _artifact(source: Resource | None) -> object:
    status = status_of(source)
    artifact = status.artifact if isinstance(status, SourceStatus) else None
    return artifact and (artifact.revision, artifact.digest, artifact.url)


def _health(source: Resource | None) -> object:
    """Return what keeps a source from new revisions: a suspension, or the reason of a failure."""
    if source is None:
        return False, False
    ready = status_of(source).condition(READY)
    return source.suspended, ready.status == FALSE and ready.reason


def _readiness(flag_set: Resource | None) -> object:
    if flag_set is None:
        return None
    status = status_of(flag_set)
    applied = status.last_applied_revision if isinstance(status, FlagSetStatus) else None
    rolled_out = status.condition(ROLLOUT_ACTIVE)
    digest = status.digest if isinstance(status, FlagSetStatus) else None
    return status.condition(READY).status, status.observed_generation, applied, digest, rolled_out


def _content(resource: Resource | None) -> object:
    """Return what a FlagSet writes of an object, without its metadata."""
    if resource is None:
        return None
    provenance = {
        key: text for key, text in resource.annotations.items() if key.startswith(PROVENANCE_PREFIX)
    }
    return resource.uid, resource.generation, resource.labels, provenance, resource.owners


def _served_status(resource: Resource | None) -> object:
    """Return who serves an object, which other object conflicts with it, and its progress, by its status."""
    if resource is None:
        return None
    status = ConfigurationStatus.of(resource)
    conditions = [
        status.condition(type_) for type_ in (PROPAGATED, NAME_CONFLICT, OVERRIDE_ACTIVE, ROLLOUT_ACTIVE)
    ]
    return status.served, status.served and status.digest, conditions


def _readers(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    yield from keys_listed_by(BY_SOURCE, _name_of)(cache, change)
    yield from keys_listed_by(BY_FOREIGN_SOURCE, lambda source: str(source.key))(cache, change)


def _judged(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """All FlagSets: which are judged depends on where we run, and a FlagSet knows what it was judged by."""
    del change
    yield from (flag_set.key for flag_set in cache.of_kind(flagset.KIND))


def _dependents(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    yield from keys_listed_by(BY_DEPENDENCY, _name_of)(cache, change)
    if change.after is None and change.latest.key.kind == flagset.KIND:
        # What it left behind may be taken by a FlagSet that was refused it.
        yield from keys_listed_by(BY_TARGET, target_name)(cache, change)


def _promotion_parts(changed: Resource | None) -> object:
    """Return the part of an object on which it depends whether a FlagRollout has promoted a commit."""
    status = None if changed is None else status_of(changed)
    if isinstance(status, FlagRolloutStatus):
        phases = [(candidate.digest, candidate.phase, candidate.step) for candidate in status.candidates]
        return status.promoted_revisions, phases, status.condition(READY)
    if isinstance(status, ConfigurationStatus):
        return status.observed_generation, status.own_digest, status.rollouts
    return _readiness(changed)


def _waiting_for_rollouts(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the FlagSets that depend on a FlagRollout, or on one of the flags of the object."""
    changed = change.latest
    if changed.key.kind == flagrollout.KIND:
        rollouts = [changed]
    elif changed.key.kind == flagset.KIND:
        rollouts = rollouts_naming(cache, changed.namespace, changed.name)
    else:
        rollouts = rollouts_for(cache, changed)
    for rollout in rollouts:
        name = source_name(rollout.key.kind, rollout.name)
        yield from (waiting.key for waiting in cache.find(BY_DEPENDENCY, rollout.namespace, name))


def _owners(_cache: Cache, change: Change) -> Iterator[ObjectKey]:
    name = _owner_of(change.after) or _owner_of(change.before)
    if name:
        yield ObjectKey(flagset.KIND, change.latest.namespace, name)


def _recording_state(rollout: Resource | None) -> object:
    """Return the part of a FlagRollout that a FlagSet may wait for."""
    if rollout is None or rollout.deleting:
        return None
    status = FlagRolloutStatus.of(rollout)
    stalled = status.condition(STALLED).status
    in_candidates = {key for candidate in status.candidates for key in candidate.flags}
    return rollout.generation, status.promoted and status.promoted.shard, in_candidates, stalled


def _flag_sets_of(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the FlagSets with the flags of a FlagRollout: one of them may wait for it."""
    for rollout in filter(None, (change.before, change.after)):
        yield ObjectKey(flagset.KIND, rollout.namespace, set_name(rollout))
        yield from (
            ObjectKey(flagset.KIND, target.namespace, owner)
            for target in targets_of(cache, rollout)
            if (owner := _owner_of(target))
        )


FLAG_SETS: Final = Reconciles(
    FLAG_SET,
    wakes=(
        Watch(
            frozenset(flagset.SOURCE_API),
            changed=lambda resource: (_artifact(resource), _health(resource)),
            keys=_readers,
        ),
        Watch(
            frozenset({flaggrant.KIND}),
            changed=lambda grant: grant and grant.spec,
            keys=keys_listed_by(BY_FOREIGN_SOURCE, lambda grant: grant.namespace),
        ),
        Watch(frozenset({flagpolicy.KIND}), changed=lambda policy: policy and policy.spec, keys=_judged),
        Watch(_DEPENDENCIES, changed=_readiness, keys=_dependents),
        Watch(
            _DEPENDENCIES | {flagrollout.KIND}, changed=version_of, keys=keys_listed_by(BY_QUESTION, _name_of)
        ),
        Watch(
            FLAG_KINDS | {flagset.KIND, flagrollout.KIND},
            changed=_promotion_parts,
            keys=_waiting_for_rollouts,
        ),
        Watch(
            _WRITTEN, changed=lambda resource: (_content(resource), _served_status(resource)), keys=_owners
        ),
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=keys_listed_by(BY_SECRET)),
        Watch(frozenset({CONFIG_MAP.kind}), changed=version_of, keys=keys_listed_by(BY_CONFIG_MAP)),
        Watch(frozenset({flagrollout.KIND}), changed=_recording_state, keys=_flag_sets_of),
        # FlagSets whose target belonged to another, or is handed over by its label.
        Watch(
            _WRITTEN,
            changed=lambda resource: (_owner_of(resource), _label_of(resource)),
            keys=keys_listed_by(BY_TARGET),
        ),
    ),
    indexes=(
        BY_SOURCE,
        BY_FOREIGN_SOURCE,
        BY_DEPENDENCY,
        BY_QUESTION,
        BY_TARGET,
        BY_OWNER,
        BY_SECRET,
        BY_CONFIG_MAP,
        *PROGRESS_INDEXES,
    ),
)
