"""What both forms of the page of a cluster have in common: the watches, and what they show."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from controller.api.kinds import EVENT
from controller.app.page.cluster_objects import EVENTS_ABOUT, WATCHED, ClusterObjects
from controller.app.page.cluster_page import ClusterPage
from controller.app.page.fleet_reader import FleetReader
from controller.app.page.shown_sets import ShownSets
from controller.kube.reflector import Reflector, WatchScope
from controller.runtime.clock import unix_time
from controller.runtime.objects.watch_health import WatchHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from controller.kube.client import Cluster
    from controller.page.delivery.proxy_members import FleetMember
    from evaluator.http.messages import Request

PACE_SECONDS: Final = 0.2
"""Seconds in which changes are collected before open pages are notified: each asks for its view anew."""


class ClusterViews:
    """Watches a cluster, and shows it."""

    def __init__(self, cluster: Cluster, namespaces: Collection[str], proxies: str) -> None:
        """`namespaces` are watched one by one; an empty name is all of them. `proxies` as for FleetReader."""
        loop = asyncio.get_running_loop()
        self.namespaces = namespaces
        self.notify: Callable[[], None] = lambda: None
        """Called on the loop soon after changes."""
        self.objects = ClusterObjects(int(unix_time()))
        self.objects.notify = self._notify_soon
        self.health = WatchHealth(time.monotonic)
        self.fleet = FleetReader(proxies, loop.time)
        self._loop = loop
        self._shown = ShownSets(self.objects.objects, unix_time)
        self._changed_at: dict[str, float] = {}
        """When each namespace changed last, in the loop's seconds."""
        self._pending: asyncio.TimerHandle | None = None
        self._pending_fleet: asyncio.TimerHandle | None = None
        scopes = [WatchScope(type_, namespace) for type_ in WATCHED for namespace in namespaces]
        scopes += [
            WatchScope(EVENT, namespace, fields=f"involvedObject.apiVersion={version}")
            for version in EVENTS_ABOUT
            for namespace in namespaces
        ]
        self._reflectors = [Reflector(cluster.api, scope, self.objects) for scope in scopes]
        for reflector in self._reflectors:
            view = reflector.view
            self.health.follow(view.type.plural, f"{view.path}?{view.fields}", reflector)

    async def watch(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def close(self) -> None:
        """Notify no more, and close connections to proxies."""
        for timer in filter(None, (self._pending, self._pending_fleet)):
            timer.cancel()
        await self.fleet.close()

    @property
    def has_listed(self) -> bool:
        """Whether all objects are known."""
        return self.objects.has_listed((type_.kind for type_ in WATCHED), self.namespaces)

    def readiness(self) -> dict[str, object]:
        """The page of `/readyz`."""
        reports = self.health.reports()
        return {"ready": self.has_listed, "watches": [watch.page() for watch in reports]}

    async def show(self, request: Request, namespaces: frozenset[str] | None) -> ClusterPage:
        """What may be seen of these namespaces; None: of all. Asks proxies where evaluators are shown."""
        fleet: Mapping[str, Sequence[FleetMember]] = {}
        if request.path.endswith("/delivery"):
            fleet = await self.fleet.members()
            self._notify_of_newer_fleet()
        return ClusterPage(self.objects, self._shown, namespaces, fleet, self._faults())

    def _faults(self) -> tuple[str, ...]:
        reports = [report for report in self.health.reports() if report.fault or report.is_stale]
        return tuple(
            f"{report.kind} cannot be read from the cluster at the moment"
            f"{f': {report.fault}' if report.fault else ''}. What is shown may be outdated."
            for report in reports
        )

    def _notify_of_newer_fleet(self) -> None:
        """Have pages ask again where proxies were asked before the last change: another may never come."""
        wait = self.fleet.wait_for_answer_after(max(self._changed_at.values(), default=0.0))
        if wait is not None and self._pending_fleet is None:
            self._pending_fleet = self._loop.call_later(wait, self._record_newer_fleet)

    def _record_newer_fleet(self) -> None:
        self._pending_fleet = None
        for namespace, moment in tuple(self._changed_at.items()):
            if self.fleet.wait_for_answer_after(moment) is not None:
                self.objects.record_change(namespace)

    def _notify_soon(self, namespace: str) -> None:
        self._changed_at[namespace] = self._loop.time()
        if self._pending is None:
            self._pending = self._loop.call_later(PACE_SECONDS, self._notify)

    def _notify(self) -> None:
        self._pending = None
        self.notify()
