"""The watches of referenced objects, in addition to those of kopf."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from controller.api.kinds import CONFIG_MAP, NAMESPACE, WORKLOADS
from controller.configurations.stage import BY_SECRET as CONFIGURATION_BY_SECRET
from controller.events.alerts.stage import BY_SECRET as PROVIDER_BY_SECRET
from controller.events.alerts.stage import SELECTING
from controller.events.receiver.stage import BY_SECRET as RECEIVER_BY_SECRET
from controller.flagsets.stage import BY_CONFIG_MAP
from controller.flagsets.stage import BY_SECRET as FLAG_SET_BY_SECRET
from controller.kube.reference_watches import ReferenceWatches
from controller.pods.workloads.flagd_objects import MANAGED_BY, OURS
from controller.pods.workloads.stage import BY_SOURCE
from controller.sources.stage import BY_SECRET as SOURCE_BY_SECRET

if TYPE_CHECKING:
    from controller.kube.client import Cluster
    from controller.runtime.objects.cache import Cache
    from controller.runtime.objects.watch_health import WatchHealth

_BY_SECRET = (
    SOURCE_BY_SECRET,
    RECEIVER_BY_SECRET,
    PROVIDER_BY_SECRET,
    FLAG_SET_BY_SECRET,
    CONFIGURATION_BY_SECRET,
)


def reference_watches(cluster: Cluster, objects: Cache, health: WatchHealth) -> tuple[ReferenceWatches, ...]:
    """Those of Secrets, ConfigMaps and Namespaces, and of our own objects, which are watched in just the
    namespaces that hold a Flagd.
    """
    watch = partial(ReferenceWatches, cluster.api, objects, health=health)
    ours = f"{MANAGED_BY}={OURS}"
    return (
        watch(_BY_SECRET),
        watch((BY_CONFIG_MAP,), type_=CONFIG_MAP),
        watch((SELECTING,), type_=NAMESPACE, everywhere=True),
        *(watch((BY_SOURCE,), type_=workload, labels=ours) for workload in WORKLOADS),
    )
