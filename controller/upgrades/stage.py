"""What wakes the reconciler of EvaluatorUpgrade, beside time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import featureflagsource, inprocess, upgrade
from controller.api.kinds import EVALUATOR_UPGRADE
from controller.runtime.reconciling.watches import Reconciles, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.meta import ObjectKey, Resource
    from controller.runtime.objects.cache import Cache, Change


def _settings(found: Resource | None) -> object:
    return None if found is None else (found.uid, found.spec)


def _beside(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Pods elsewhere that refer to it are found at the next look."""
    return (each.key for each in cache.of_kind(upgrade.KIND, change.latest.namespace))


EVALUATOR_UPGRADES: Final = Reconciles(
    EVALUATOR_UPGRADE,
    wakes=(Watch(frozenset({featureflagsource.KIND, inprocess.KIND}), changed=_settings, keys=_beside),),
)
