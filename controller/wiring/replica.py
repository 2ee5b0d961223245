"""One replica of the controller: what it knows, and what it does while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagsource, receipt
from controller.api.kinds import WATCHED
from controller.api.meta import Resource, about
from controller.configurations.live_proxies import LiveProxies
from controller.configurations.stage import CONFIGURATIONS, FEATURE_FLAGS
from controller.delivery.claims import Claims
from controller.flagsets.stage import FLAG_SETS
from controller.handlers.app import seen
from controller.kube.lease import Lease
from controller.receiver.endpoints import Endpoints
from controller.receiver.server import Receiver
from controller.receiver.stage import FLAG_RECEIVERS
from controller.runtime.clock import now
from controller.runtime.lasting import forever
from controller.runtime.setbacks import Setback
from controller.runtime.watch_health import STALE_SECONDS
from controller.runtime.watches import woken
from controller.sources.pending import PendingPushes
from controller.sources.stage import FLAG_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.kinds import ResourceType
    from controller.api.meta import ObjectKey
    from controller.artifacts.storages import Storages
    from controller.kube.client import Cluster
    from controller.runtime.cache import Cache, Change
    from controller.runtime.loop import Loop
    from controller.runtime.metrics import Metrics
    from controller.runtime.watch_health import WatchHealth
    from controller.settings import ControllerSettings
    from controller.sources.git.factory import GitFactory

log = logging.getLogger(__name__)

STAGES: Final = (FLAG_SOURCES, FLAG_SETS, CONFIGURATIONS, FEATURE_FLAGS, FLAG_RECEIVERS)
LEADER_LABEL: Final = "flagstaff.dev/leader"
_LIST_AGAIN: Final = 1.0
_PROXIES: Final = 5.0
"""Seconds from one look at the proxies' Leases to the next."""
MIRRORS: Final = 3600.0
"""Seconds between two sweeps of mirrors that nobody uses."""
SWEEP: Final = 300.0
"""Seconds between two looks for what is gone although no watch said so."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that are listened on."""

    management: int
    artifacts: int
    receiver: int


@dataclass
class Controller:
    """One replica: it knows what is there from its start, and works while it leads."""

    settings: ControllerSettings
    cluster: Cluster
    objects: Cache
    metrics: Metrics
    health: WatchHealth
    watch_again: Callable[[], None] = field(default=lambda: None, init=False)
    """Begins all watches anew."""
    proxies: LiveProxies = field(default_factory=LiveProxies, init=False)
    claims: Claims = field(default_factory=Claims, init=False)
    loops: dict[str, Loop] = field(default_factory=dict, init=False)
    endpoints: Endpoints = field(default_factory=Endpoints, init=False)
    expected: PendingPushes = field(default_factory=PendingPushes, init=False)
    storages: Storages | None = field(default=None, init=False)
    git: GitFactory | None = field(default=None, init=False)
    ports: Ports = field(default=Ports(0, 0, 0), init=False)
    synced: bool = field(default=False, init=False)
    _unwatched: dict[str, float] = field(default_factory=dict, init=False)
    """Kinds that are installed and that nobody watches, since when."""
    _stale: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _labelled: bool | None = field(default=None, init=False)
    """Whether our pod bears the leader's label; None: not known, it may have it from a process before us."""
    _labelling: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        """Every change wakes whom it concerns."""
        self.objects.on_change = self._changed

    async def work(self) -> None:
        """Learn what is there, then lead whenever the lease says so, until cancelled."""
        await self._sync()
        looks = (self._sweep, self._keep_label)
        tasks = [asyncio.create_task(forever(each)) for each in looks]
        try:
            await forever(self._lead_in_turn)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def relisted(self, type_: ResourceType) -> None:
        """A watch began anew: what went meanwhile is to be looked for."""
        if type_.kind in self.loops:
            self.loops[type_.kind].relisted()
        self._stale.set()

    async def _lead_in_turn(self) -> None:
        if not self.settings.leader_election:
            await self._lead()
            return
        settings = self.settings
        lease = Lease(self.cluster, settings.namespace, settings.lease_name, settings.identity)
        try:
            await lease.lead(self._lead)
        finally:
            await lease.release()

    def readiness(self) -> dict[str, Any]:
        """Ready once everything is known; a standby is ready, too. With the API server down it stays so, and
        says how old its view is.
        """
        reports = self.health.reports()
        ages = [each.age for each in reports if each.age is not None]
        return {
            "ready": self.synced,
            "leader": self.metrics.leading,
            "ageSeconds": round(max(ages), 1) if ages else None,
            "stale": [each.kind for each in reports if each.stale],
            "watches": [each.page() for each in reports],
        }

    def receiver(self) -> Receiver:
        """What the webhooks' port answers."""
        return Receiver(
            self.endpoints,
            self.objects,
            expect=self.expected.expect,
            wake=self._wake,
            now=now,
            clock=asyncio.get_running_loop().time,
            leading=lambda: self.metrics.leading,
            received=self.metrics.received,
        )

    def applied(self, body: dict[str, Any]) -> None:
        """What we wrote is known before its event comes."""
        self.objects.learn(Resource.of(body))

    def _changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if after is not None and after.key.kind == receipt.KIND:
            self._meet(after)
        if after is None and before is not None and before.key.kind in self.loops:
            self.loops[before.key.kind].gone(before.key)
        rivals = self.claims.follow(before, after).rivals
        for key in rivals | woken(STAGES, self.objects, change):
            self._wake(key)

    def _wake(self, key: ObjectKey) -> None:
        loop = self.loops.get(key.kind)
        if loop is not None:
            loop.wake(key)

    async def _sync(self) -> None:
        """List everything once: whoever works must not take what was not listed yet for what is not there."""
        for type_ in WATCHED:
            for body in await self._listed(type_):
                seen(self.objects, type_, body, deleted=False)
        self.synced = True

    async def _listed(self, type_: ResourceType) -> list[dict[str, Any]]:
        """All objects of a kind, however long it takes until they can be had."""
        told = ""
        while True:
            try:
                return await self.cluster.everywhere(
                    type_.api_version,
                    type_.plural,
                    self.settings.namespaces,
                    content=type_.content,
                )
            except Setback as setback:
                why = setback.message
            except Exception as error:  # noqa: BLE001 - whoever answers in the API server's place says anything
                why = f"{type(error).__name__}: {error}"
            if why != told:
                log.warning("%s cannot be listed yet: %s", type_.plural, why)
                told = why
            await asyncio.sleep(_LIST_AGAIN)

    async def _sweep(self) -> None:
        """Forget what is gone, once it is time: of what went while its watch was broken, no event comes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stale.wait(), SWEEP)
        self._stale.clear()
        failed: dict[str, str] = {}
        for type_ in WATCHED:
            try:
                await self._sweep_kind(type_)
            except Setback as setback:
                failed[type_.plural] = setback.message
            except Exception:
                # The other kinds are compared all the same.
                log.exception("comparing %s with the cluster failed", type_.plural)
        if failed:
            log.warning(
                "not compared with the cluster: %s: %s", ", ".join(failed), next(iter(failed.values()))
            )
        # A new watch lists thousands, one by one.
        await asyncio.sleep(_LIST_AGAIN)

    async def _sweep_kind(self, type_: ResourceType) -> None:
        uids, version = await self.cluster.present(type_.api_version, type_.plural, self.settings.namespaces)
        self._check_watch(type_.plural, installed=version > 0)
        for each in self.objects.of_kind(type_.kind):
            if each.uid not in uids and int(each.resource_version) <= version:
                log.info("it was deleted while no watch was open", extra=about(each.key))
                self.objects.forget(each.key)

    def _check_watch(self, plural: str, *, installed: bool) -> None:
        """Begin the watches anew where a kind was installed and none was begun for it."""
        if not installed:
            self.health.ended(plural)
        report = self.health.of(plural)
        if not installed or (report is not None and (report.fault or not report.stale)):
            self._unwatched.pop(plural, None)
            return
        clock = asyncio.get_running_loop().time
        if clock() - self._unwatched.setdefault(plural, clock()) > STALE_SECONDS:
            log.warning("%s are installed but not watched; restarting all watches", plural)
            self._unwatched.clear()
            self.watch_again()

    async def _lead(self) -> None:
        self.metrics.leading = True
        await self._remove_strangers()
        for resource in self.objects:
            self._wake(resource.key)
        await self._label_own_pod()
        try:
            async with asyncio.TaskGroup() as group:
                for loop in self.loops.values():
                    group.create_task(loop.run())
                group.create_task(forever(self._follow_proxies))
                group.create_task(forever(self._sweep_mirrors))
        finally:
            self.metrics.leading = False
            await self._label_own_pod()

    async def _follow_proxies(self) -> None:
        """Which proxies live: what a dead one knew counts no more, and is removed. Asks only where any proxy
        ever told anything.
        """
        clock = asyncio.get_running_loop().time
        for each in self.objects.of_kind(receipt.KIND):
            self._meet(each)
        if self.proxies.alive:
            try:
                found = await self.cluster.leases(self.settings.namespace, receipt.PROXY_LABEL)
                await self._bury(self.proxies.learn(found, clock()), found)
            except Setback as setback:
                log.warning("the proxies' Leases cannot be read: %s", setback.message)
        await asyncio.sleep(_PROXIES)

    def _meet(self, found: Resource) -> None:
        self.proxies.meet(str(found.spec.get("proxy")), asyncio.get_running_loop().time())

    async def _bury(self, dead: frozenset[str], leases: Mapping[str, str]) -> None:
        for each in self.objects.of_kind(receipt.KIND):
            if each.spec.get("proxy") in dead:
                key = each.key
                await self.cluster.delete(each.api_version, key.kind, key.namespace, key.name, uid=each.uid)
                # Its event comes later.
                self.objects.forget(key)
        for name in leases:
            if name.removeprefix(receipt.LEASE_PREFIX) in dead:
                await self.cluster.delete("coordination.k8s.io/v1", "Lease", self.settings.namespace, name)

    async def _remove_strangers(self) -> None:
        """Artifacts of sources that went while nobody ran."""
        if self.storages is None:
            return
        sources = [each.key for each in self.objects.of_kind(flagsource.KIND)]
        try:
            await asyncio.to_thread(self.storages.keep, sources)
        except Setback as setback:
            log.warning("old artifacts were not removed: %s", setback.message)

    async def _sweep_mirrors(self) -> None:
        """Not at once: by then every source was opened that can be, and says which mirror it uses."""
        await asyncio.sleep(MIRRORS)
        if self.git is not None:
            await self.git.sweep(now())

    async def _keep_label(self) -> None:
        """See to it that a label which was not set or taken away in time is, once the API server
        can be had.
        """
        if self._labelled is not self.metrics.leading:
            await self._label_own_pod()
        await asyncio.sleep(_LIST_AGAIN)

    async def _label_own_pod(self) -> None:
        """The Services of the artifact server and the receiver select the leader by this label."""
        async with self._labelling:
            leading = self.metrics.leading
            if self.settings.pod:
                labels = {LEADER_LABEL: "true" if leading else None}
                try:
                    await self.cluster.label_pod(self.settings.namespace, self.settings.pod, labels)
                except Setback as setback:
                    log.warning("this pod could not be labelled as the leader: %s", setback.message)
                    return
            self._labelled = leading
