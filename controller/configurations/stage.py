"""What wakes the reconcilers of FeatureFlagConfiguration and FeatureFlag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagreceipt, flagshard
from controller.api.kinds import FEATURE_FLAG, FEATURE_FLAG_CONFIGURATION
from controller.api.objects.meta import ObjectKey
from controller.api.openfeature import featureflagconfiguration
from controller.runtime.objects.cache import Index
from controller.runtime.reconciling.watches import Reconciles, Watch, listed_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.runtime.objects.cache import Cache, Change


BY_SHARD: Final = Index(
    "FeatureFlagConfiguration by shard",
    frozenset({featureflagconfiguration.KIND}),
    lambda resource: flagshard.names(resource.spec),
)


def _counted_configurations(_cache: Cache, change: Change) -> Iterator[ObjectKey]:
    name, _ = flagreceipt.pair_of(change.latest)
    if name:
        yield ObjectKey(featureflagconfiguration.KIND, change.latest.namespace, name)


CONFIGURATIONS: Final = Reconciles(
    FEATURE_FLAG_CONFIGURATION,
    wakes=(
        Watch(frozenset({flagshard.KIND}), changed=lambda resource: resource, keys=listed_by(BY_SHARD)),
        Watch(
            frozenset({flagreceipt.KIND}),
            changed=lambda resource: None if resource is None else (resource.uid, resource.status),
            keys=_counted_configurations,
        ),
    ),
    indexes=(BY_SHARD,),
)
FEATURE_FLAGS: Final = Reconciles(FEATURE_FLAG)
