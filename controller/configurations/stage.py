"""What wakes the reconcilers of FeatureFlagConfiguration and FeatureFlag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import (
    featureflagconfiguration,
    flagoverride,
    flagreceipt,
    flagrollout,
    flagset,
    flagshard,
    flagsource,
)
from controller.api.flagset import proven_writer
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import FEATURE_FLAG, FEATURE_FLAG_CONFIGURATION, SECRET, status_of
from controller.api.meta import ObjectKey, Resource, version_of
from controller.api.remote_provider import provider_shards, provider_spec
from controller.api.status import READY
from controller.configurations.validation import targets_of_writer
from controller.delivery.object_bounds import WRITTEN
from controller.delivery.overrides import BY_WRITER, FLAG_KINDS, order_of_override, set_name, written_by
from controller.delivery.rollouts import PROGRESS_INDEXES, ROLLOUTS_BY_SHARD, TARGETS_BY_SHARD, order_of
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.watches import Reconciles, Watch, keys_listed_by

if TYPE_CHECKING:
    from collections.abc import Iterator


def _secrets(resource: Resource) -> Iterator[str]:
    login = (provider_spec(resource) or {}).get("credentials")
    if isinstance(login, dict):
        yield str(login.get("secret"))


def _sources(resource: Resource) -> Iterator[str]:
    name = (provider_spec(resource) or {}).get("flagSource")
    if name is not None:
        yield str(name)


def _owners(shard: Resource) -> Iterator[str]:
    kind = featureflagconfiguration.KIND
    yield from (str(owner.get("name")) for owner in shard.owners if owner.get("kind") == kind)


BY_SHARD: Final = Index(
    "FeatureFlagConfiguration by shard",
    frozenset({featureflagconfiguration.KIND}),
    lambda resource: {*flagshard.names(resource.spec), *provider_shards(resource.status)},
)


BY_SECRET: Final = Index(
    "FeatureFlagConfiguration by Secret", frozenset({featureflagconfiguration.KIND}), _secrets
)
BY_FLAG_SOURCE: Final = Index(
    "FeatureFlagConfiguration by FlagSource", frozenset({featureflagconfiguration.KIND}), _sources
)
SHARDS_BY_OWNER: Final = Index("FlagShard by FeatureFlagConfiguration", frozenset({flagshard.KIND}), _owners)


def _progress(kind: str) -> tuple[Watch, ...]:
    """Return the watches that wake objects of `kind`: of FlagOverrides, FlagRollouts, FlagShards of promoted
    definitions, the annotation that promotes a deleted rollout, and FlagSets that write other objects now.
    """

    def targets(cache: Cache, order: Resource) -> Iterator[ObjectKey]:
        name = set_name(order)
        yield ObjectKey(kind, order.namespace, name)
        written = written_by(cache, order.namespace, name)
        yield from (resource.key for resource in written if resource.key.kind == kind)

    def keys(cache: Cache, change: Change) -> Iterator[ObjectKey]:
        for order in filter(None, (change.before, change.after)):
            yield from targets(cache, order)

    def edges(cache: Cache, change: Change) -> Iterator[ObjectKey]:
        for writer in filter(None, map(proven_writer, filter(None, (change.before, change.after)))):
            front = cache.choose(BY_WRITER, change.latest.namespace, writer, WRITTEN.front)
            yield from (key for key in WRITTEN.edge(front) if key.kind == kind)

    def by_shard(cache: Cache, change: Change) -> Iterator[ObjectKey]:
        namespace, name = change.latest.namespace, change.latest.name
        for rollout in cache.find(ROLLOUTS_BY_SHARD, namespace, name):
            yield from targets(cache, rollout)
        promoted = cache.find(TARGETS_BY_SHARD, namespace, name)
        yield from (target.key for target in promoted if target.key.kind == kind)

    return (
        Watch(frozenset({flagoverride.KIND}), changed=order_of_override, keys=keys),
        Watch(frozenset({flagrollout.KIND}), changed=order_of, keys=keys),
        Watch(frozenset({flagshard.KIND}), changed=lambda shard: shard and shard.uid, keys=by_shard),
        Watch(FLAG_KINDS, changed=lambda target: target and (target.uid, proven_writer(target)), keys=edges),
        Watch(
            frozenset({kind}),
            changed=lambda target: target and target.annotations.get(flagrollout.PROMOTE),
            keys=lambda _cache, change: (change.latest.key,),
        ),
        Watch(
            frozenset({flagset.KIND}),
            changed=lambda flag_set: FlagSetStatus.of(flag_set).target,
            keys=lambda cache, change: (key for key in targets_of_writer(cache, change) if key.kind == kind),
        ),
    )


def _artifact(source: Resource | None) -> object:
    status = status_of(source)
    ready = status.condition(READY)
    return source is None, status.content, ready.status, ready.reason


def _counted_configurations(_cache: Cache, change: Change) -> Iterator[ObjectKey]:
    name, _ = flagreceipt.pair_of(change.latest)
    if name:
        yield ObjectKey(featureflagconfiguration.KIND, change.latest.namespace, name)


CONFIGURATIONS: Final = Reconciles(
    FEATURE_FLAG_CONFIGURATION,
    wakes=(
        Watch(frozenset({flagshard.KIND}), changed=lambda resource: resource, keys=keys_listed_by(BY_SHARD)),
        Watch(
            frozenset({flagreceipt.KIND}),
            changed=lambda resource: None if resource is None else (resource.uid, resource.status),
            keys=_counted_configurations,
        ),
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=keys_listed_by(BY_SECRET)),
        Watch(frozenset({flagsource.KIND}), changed=_artifact, keys=keys_listed_by(BY_FLAG_SOURCE)),
        *_progress(featureflagconfiguration.KIND),
    ),
    indexes=(BY_SHARD, BY_SECRET, BY_FLAG_SOURCE, SHARDS_BY_OWNER, *PROGRESS_INDEXES),
)
FEATURE_FLAGS: Final = Reconciles(
    FEATURE_FLAG, wakes=_progress(featureflagconfiguration.FLAG_KIND), indexes=PROGRESS_INDEXES
)
