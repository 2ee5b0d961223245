"""Elects one leader among replicas by a Lease: with the official package's lock, and our own loop around it.

A Lease does not fence: a leader that was paused may act once more before it notices. Every effect of ours is
idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from kubernetes.aio.client import (
    ApiException,
    CoordinationV1Api,  # noqa: F401 - the lock would import it, 0.1 s on the event loop
    V1Lease,
    V1ObjectMeta,
)
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from controller.kube.paths import path_of
from controller.runtime.clock import now
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

    from controller.kube.client import Cluster

log = logging.getLogger(__name__)

DURATION: Final = 10
"""Seconds after which an unrenewed Lease expires: a standby acts within this and two looks."""
RENEW_WITHIN: Final = 8.0
"""Seconds without a renewal after which we stop leading ourselves, before anybody else may start."""
RENEW: Final = 4.0
"""Seconds from one renewal to the next."""
LOOK: Final = 1.5
"""Seconds until a Lease is tried again that another holds, or that could not be renewed."""


async def _nothing() -> None:
    """The library's own callbacks are not used."""


class _Lock(LeaseLock):
    """The library's own, but for how a Lease is made: its way does not work in version 37."""

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Make the Lease, held by us; False where another replica was faster, or it may not be made."""
        body = V1Lease(
            metadata=V1ObjectMeta(name=name),
            spec=self.update_lease(election_record),
        )
        try:
            await self.api_instance.create_namespaced_lease(namespace, body)
        except ApiException as error:
            log.warning("the Lease was not created: the API server answers %s", error.status)
            return False
        return True


@dataclass(slots=True)
class _Held:
    """The last known state of a Lease."""

    ours: bool = False
    """Whether it was ours at our last acquisition or renewal."""
    lease: dict[str, Any] = field(default_factory=dict)
    """The Lease as the API server answered our last renewal; empty: it must be read first."""


@dataclass(frozen=True)
class Lease:
    """The Lease `name`, asked for as `identity`."""

    cluster: Cluster
    namespace: str
    name: str
    identity: str
    now: Callable[[], datetime] = now
    _held: _Held = field(default_factory=_Held)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, do `work` for as long as it is ours, and wait again. Ends when `work` does, or
        is cancelled.
        """
        while True:
            await self._wait_until_ours()
            log.info("%s leads", self.identity)
            if await self._work_while_ours(work):
                return
            log.warning("%s is no longer the leader: the Lease was not renewed in time", self.identity)

    async def release(self) -> None:
        """Release the Lease at once. Never raises."""
        try:
            lease = (await self.cluster.request("GET", self._path)).body
            if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
                return
            # Without a holder: an empty name would have to expire like any other.
            del lease["spec"]["holderIdentity"]
            # Replaced, not patched: a replica that has acquired it meanwhile keeps it.
            await self.cluster.request("PUT", self._path, {}, lease)
        except Failed as failure:
            log.warning("the Lease was not released: %s", failure.message)

    async def _wait_until_ours(self) -> None:
        while True:
            if await self._ours(RENEW_WITHIN):
                return
            await asyncio.sleep(LOOK)

    async def _work_while_ours(self, work: Callable[[], Awaitable[None]]) -> bool:
        """True if `work` ended by itself."""
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work())
        renewed, pause = loop.time(), RENEW
        try:
            while (left := renewed + RENEW_WITHIN - loop.time()) > 0:
                done, _ = await asyncio.wait({task}, timeout=min(pause, left))
                if done:
                    await task
                    return True
                # The lease runs from when it was asked for, not from when the answer came.
                asked = loop.time()
                ours = await self._ours(renewed + RENEW_WITHIN - asked)
                renewed, pause = (asked, RENEW) if ours else (renewed, LOOK)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return False

    async def _ours(self, left: float) -> bool:
        """Take or renew the lease; False where it is another's or the API server does not answer, in `left`
        seconds at most.
        """
        try:
            async with asyncio.timeout(min(left, RENEW_WITHIN / 2)):
                renewed = self._held.ours and await self._renew()
                self._held.ours = renewed or await self._election.try_acquire_or_renew()
                return self._held.ours
        except Exception as error:  # noqa: BLE001 - the library fails in many ways on what is no Lease
            log.warning("the Lease cannot be read: %s", type(error).__name__)
            return False

    async def _renew(self) -> bool:
        """Renew the lease that was ours by one write, as client-go does; False where it may be another's now.

        The library reads it each time, and builds models of it: half of what an idle controller did.
        """
        known, self._held.lease = self._held.lease, {}
        try:
            lease = known or (await self.cluster.request("GET", self._path)).body
            spec = lease.get("spec")
            if not isinstance(spec, dict) or spec.get("holderIdentity") != self.identity:
                return False
            moment = self.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
            renewed = {**lease, "spec": {**spec, "leaseDurationSeconds": DURATION, "renewTime": moment}}
            # With the known version: fails if another replica wrote it since.
            answer = await self.cluster.request("PUT", self._path, {}, renewed)
        except Failed:
            return False
        if answer.status != HTTPStatus.OK:
            return False
        self._held.lease = answer.body
        return True

    @property
    def _path(self) -> str:
        return path_of("coordination.k8s.io/v1", "Lease", self.namespace, self.name)

    @cached_property
    def _election(self) -> LeaderElection:
        # Kept: it remembers when it last saw a change, so it notices that a leader is silent.
        lock = _Lock(self.name, self.namespace, self.identity, self.cluster.api)
        return LeaderElection(Config(lock, DURATION, RENEW_WITHIN, LOOK, _nothing, _nothing))
