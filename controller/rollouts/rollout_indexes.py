"""The indexes by which the reconcilers of rollouts and overrides find objects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagshard
from controller.api.openfeature import featureflagconfiguration
from controller.api.rollouts import flagrollout
from controller.runtime.objects.cache import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import Resource


def _rollouts(shard: Resource) -> Iterator[str]:
    kind = flagrollout.KIND
    yield from (str(owner.get("uid")) for owner in shard.owners if owner.get("kind") == kind)


BY_PART: Final = Index(
    "FeatureFlagConfiguration by its shard",
    frozenset({featureflagconfiguration.KIND}),
    lambda resource: flagshard.names(resource.spec),
)
SHARDS_BY_ROLLOUT: Final = Index("FlagShard by FlagRollout", frozenset({flagshard.KIND}), _rollouts)
"""By the uid of the FlagRollout: a later one of the same name has other shards."""
