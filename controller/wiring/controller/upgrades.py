"""The reconciler of EvaluatorUpgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.kube.adapters.workloads import ClusterRestarts
from controller.upgrades.reconciler import EvaluatorUpgradeReconciler
from controller.wiring.controller.admission import known_objects, options_of

if TYPE_CHECKING:
    from controller.kube.client import Cluster
    from controller.runtime.objects.cache import Cache
    from controller.settings import ControllerSettings


def upgrade_reconciler(
    settings: ControllerSettings, objects: Cache, cluster: Cluster
) -> EvaluatorUpgradeReconciler:
    """As the settings have it: pods would get what the webhook gives them."""
    return EvaluatorUpgradeReconciler(
        ClusterRestarts(cluster), known_objects(settings, objects), options_of(settings)
    )
