"""Declares the changes that wake the reconciler of EvaluatorUpgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import evaluatorupgrade, featureflagsource, inprocessconfiguration
from controller.api.kinds import EVALUATOR_UPGRADE
from controller.api.meta import ObjectKey, uid_and_spec
from controller.runtime.watches import Reconciles, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.runtime.cache import Cache, Change


def _beside(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Return the upgrades of the namespace; the next reconcile counts pods elsewhere that refer to it."""
    return (resource.key for resource in cache.of_kind(evaluatorupgrade.KIND, change.latest.namespace))


EVALUATOR_UPGRADES: Final = Reconciles(
    EVALUATOR_UPGRADE,
    wakes=(
        Watch(
            frozenset({featureflagsource.KIND, inprocessconfiguration.KIND}),
            changed=uid_and_spec,
            keys=_beside,
        ),
    ),
)
