"""One replica of the controller: which parts run, and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import POD
from controller.api.objects.meta import ObjectKey
from controller.kube.lease import Lease
from controller.runtime.process.lasting import forever
from controller.runtime.process.leadership import Leadership, Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from controller.api.kinds import ResourceType
    from controller.app.pod_work import PodWork
    from controller.app.settings.process_settings import ControllerSettings
    from controller.configurations.live_proxies import ProxyFollower
    from controller.events.services.deliverer import Deliverer
    from controller.kube.client import Cluster
    from controller.kube.reference_watches import ReferenceWatches
    from controller.kube.reflector import Reflector
    from controller.pods.certificates.rotation import CertificateRotation
    from controller.runtime.objects.collection import Collector
    from controller.runtime.objects.watch_health import WatchHealth
    from controller.runtime.reconciling.loop import Loop
    from controller.runtime.reconciling.watches import Dispatcher
    from controller.sources.files.leftovers import Leftovers

_LEADER_LABEL: Final = "flagstaff.dev/leader"
"""Of the leader's pod: the Services of the artifact server and the receiver select it by this."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The numbers of the open ports."""

    management: int
    artifacts: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Controller:
    """One replica: fills its cache from the start, and reconciles while it leads."""

    ports: Ports
    collector: Collector
    leadership: Leadership
    dispatcher: Dispatcher
    loops: Mapping[str, Loop]
    """By kind."""
    leftovers: Leftovers
    proxies: ProxyFollower
    watches: tuple[ReferenceWatches, ...]
    certificates: Mapping[str, CertificateRotation]
    """By the server that they are for."""
    refused_pods: tuple[Reflector, ...]
    deliverer: Deliverer
    pods: PodWork

    async def work(self) -> None:
        """Learn what is there, then lead whenever the election says so, until cancelled."""
        await self.collector.fill()
        beside = [self.collector.compare, *(watch.run for watch in self.watches)]
        beside += [reflector.run for reflector in (*self.pods.watches, *self.refused_pods)]
        beside += [keeper.check for keeper in self.certificates.values()]
        tasks = [asyncio.create_task(forever(task)) for task in beside]
        try:
            await self.leadership.run(self._lead)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self) -> None:
        await self.leftovers.remove_artifacts()
        self.deliverer.begin()
        self.dispatcher.wake_all()
        async with asyncio.TaskGroup() as group:
            for loop in self.loops.values():
                group.create_task(loop.run())
            group.create_task(self.deliverer.run())
            for kept in (self.pods.files, self.pods.readers, self.pods.proxy, self.pods.direct_sets):
                if kept is not None:
                    group.create_task(forever(kept.run))
            group.create_task(forever(self.proxies.poll))
            group.create_task(forever(self.leftovers.sweep))

    def on_relist(self, type_: ResourceType) -> None:
        """Handle a restarted watch: find objects that were deleted meanwhile."""
        if type_.kind in self.loops:
            self.loops[type_.kind].on_relist()
        self.collector.on_relist()


def leadership_of(settings: ControllerSettings, cluster: Cluster, role: Role) -> Leadership:
    """By a Lease where the settings ask for an election, and with the label of our own pod."""
    pod = ObjectKey(POD.kind, settings.namespace, settings.pod)
    election = Lease(cluster, settings.namespace, settings.lease_name, settings.identity)

    def label(leading: bool) -> Awaitable[None]:
        return cluster.patch_metadata(POD, pod, labels={_LEADER_LABEL: "true" if leading else None})

    return Leadership(role, election if settings.leader_election else None, label if settings.pod else None)


def readiness(
    collector: Collector, role: Role, health: WatchHealth, certificates: Mapping[str, CertificateRotation]
) -> dict[str, Any]:
    """Ready once everything is known; a standby is ready, too. With the API server down it stays so, and says
    how old its view is.
    """
    reports = health.reports()
    ages = [report.age for report in reports if report.age is not None]
    return {
        "ready": collector.synced,
        "leader": role.leading,
        "certificates": {server: keeper.state for server, keeper in certificates.items()},
        "ageSeconds": round(max(ages), 1) if ages else None,
        "stale": [report.kind for report in reports if report.is_stale],
        "watches": [report.page() for report in reports],
    }
