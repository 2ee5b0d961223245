"""What wakes the reconciler of FlagOverride."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagoverride, flagshard
from controller.api.flagset import LABEL
from controller.api.kinds import FLAG_OVERRIDE
from controller.api.openfeature import featureflagconfiguration
from controller.api.remote_provider import entries_in_force
from controller.delivery.overrides import BY_FLAG_SET, BY_WRITER, FLAG_KINDS, names_of, set_name
from controller.runtime.objects.cache import Index
from controller.runtime.reconciling.watches import Reconciles, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.runtime.objects.cache import Cache, Change

BY_PART: Final = Index(
    "FeatureFlagConfiguration by its shard",
    frozenset({featureflagconfiguration.KIND}),
    lambda resource: flagshard.names(resource.spec),
)


def _content(target: Resource | None) -> object:
    return target and (
        target.uid,
        target.generation,
        target.labels.get(LABEL),
        entries_in_force(target.status),
    )


def _order(override: Resource | None) -> object:
    return override and (override.uid, override.generation, override.deleting)


def _overrides(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    for target in filter(None, (change.before, change.after)):
        for name in names_of(target):
            yield from (found.key for found in cache.find(BY_FLAG_SET, target.namespace, name))


def _of_shard(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    shard = change.latest
    for target in cache.find(BY_PART, shard.namespace, shard.name):
        for name in names_of(target):
            yield from (found.key for found in cache.find(BY_FLAG_SET, target.namespace, name))


def _rivals(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """The overrides of the same flags: one may name the FlagSet, and another what that has written."""
    for override in filter(None, (change.before, change.after)):
        name = set_name(override)
        for rival in cache.of_kind(flagoverride.KIND, override.namespace):
            if rival.spec.get("flag") == override.spec.get("flag") or set_name(rival) == name:
                yield rival.key


FLAG_OVERRIDES: Final = Reconciles(
    FLAG_OVERRIDE,
    wakes=(
        Watch(FLAG_KINDS, changed=_content, keys=_overrides),
        Watch(frozenset({flagshard.KIND}), changed=lambda shard: shard and shard.uid, keys=_of_shard),
        Watch(frozenset({flagoverride.KIND}), changed=_order, keys=_rivals),
    ),
    indexes=(BY_FLAG_SET, BY_WRITER, BY_PART),
)
