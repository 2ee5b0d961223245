"""The reconciler of Flagd, and the watches of what it makes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from controller.api.kinds import WORKLOADS
from controller.kube.adapters.workloads import ClusterWorkloads
from controller.kube.reference_watches import ReferenceWatches
from controller.wiring.controller.admission import known_objects, options_of
from controller.workloads.manifests import MANAGED_BY, OURS
from controller.workloads.reconciler import FlagdReconciler
from controller.workloads.settings_reconciler import SettingsReconciler
from controller.workloads.stage import BY_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.kube.client import Cluster
    from controller.runtime.objects.cache import Cache
    from controller.runtime.objects.watch_health import WatchHealth
    from controller.settings import ControllerSettings


def flagd_reconciler(
    settings: ControllerSettings, objects: Cache, cluster: Cluster, applied: Callable[[dict[str, Any]], None]
) -> FlagdReconciler:
    """As the settings have it: its evaluators are those that are injected."""
    known = known_objects(settings, objects)
    return FlagdReconciler(objects, ClusterWorkloads(cluster), applied, known, options_of(settings))


def settings_reconciler(settings: ControllerSettings, objects: Cache) -> SettingsReconciler:
    """The reconciler of both kinds that configure injected pods."""
    return SettingsReconciler(known_objects(settings, objects), options_of(settings))


def workload_watches(cluster: Cluster, objects: Cache, health: WatchHealth) -> tuple[ReferenceWatches, ...]:
    """The watches of our own objects, in just the namespaces that hold a Flagd."""
    return tuple(
        ReferenceWatches(
            cluster.api,
            objects,
            (BY_SOURCE,),
            health,
            clock=asyncio.get_running_loop().time,
            random=random.random,
            type_=each,
            labels=f"{MANAGED_BY}={OURS}",
        )
        for each in WORKLOADS
    )
