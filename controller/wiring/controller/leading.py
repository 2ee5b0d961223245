"""Leader election among the controller's replicas, and how others see its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.kinds import POD
from controller.api.meta import ObjectKey
from controller.kube.lease import Lease
from controller.runtime.process.leadership import Leadership, Role
from controller.wiring.controller.replica import LEADER_LABEL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from controller.kube.client import Cluster
    from controller.settings import ControllerSettings


def leadership_of(settings: ControllerSettings, cluster: Cluster, role: Role) -> Leadership:
    """By a Lease, where the settings ask for an election."""
    return Leadership(role, _election(settings, cluster), _label(settings, cluster))


def _election(settings: ControllerSettings, cluster: Cluster) -> Lease | None:
    if not settings.leader_election:
        return None
    return Lease(cluster, settings.namespace, settings.lease_name, settings.identity)


def _label(settings: ControllerSettings, cluster: Cluster) -> Callable[[bool], Awaitable[None]] | None:
    """Labels our own pod: the Services of the artifact server and the receiver select the leader by it."""
    if not settings.pod:
        return None

    pod = ObjectKey(POD.kind, settings.namespace, settings.pod)

    def label(leading: bool) -> Awaitable[None]:
        return cluster.patch_metadata(POD, pod, labels={LEADER_LABEL: "true" if leading else None})

    return label
