"""One leader among replicas, by a Lease: the official package's lock, our own loop around it.

A Lease does not fence: a leader that was paused may act once more before it notices. Every effect of ours is
idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

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
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

    from controller.kube.client import Cluster

log = logging.getLogger(__name__)

DURATION: Final = 10
"""Seconds after which a silent leader is one no more: a standby acts within this and two looks."""
RENEW_WITHIN: Final = 7.0
"""Seconds without a renewal after which we stop leading ourselves, before anybody else may start."""
LOOK: Final = 1.5


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


@dataclass(frozen=True)
class Lease:
    """The Lease `name`, asked for as `identity`."""

    cluster: Cluster
    namespace: str
    name: str
    identity: str

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
        """Let another replica lead at once. Never raises."""
        path = path_of("coordination.k8s.io/v1", "Lease", self.namespace, self.name)
        try:
            lease = (await self.cluster.request("GET", path)).body
            if (lease.get("spec") or {}).get("holderIdentity") != self.identity:
                return
            # Without a holder: an empty name would be waited out like any other.
            del lease["spec"]["holderIdentity"]
            # Replaced, not patched: a replica that has acquired it meanwhile keeps it.
            await self.cluster.request("PUT", path, {}, lease)
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
        renewed = loop.time()
        try:
            while (left := renewed + RENEW_WITHIN - loop.time()) > 0:
                done, _ = await asyncio.wait({task}, timeout=min(LOOK, left))
                if done:
                    await task
                    return True
                # The lease runs from when it was asked for, not from when the answer came.
                asked = loop.time()
                if await self._ours(renewed + RENEW_WITHIN - asked):
                    renewed = asked
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
                return await self._election.try_acquire_or_renew()
        except Exception as error:  # noqa: BLE001 - the library fails in many ways on what is no Lease
            log.warning("the Lease cannot be read: %s", type(error).__name__)
            return False

    @cached_property
    def _election(self) -> LeaderElection:
        # Kept: it remembers when it last saw a change, so it notices that a leader is silent.
        lock = _Lock(self.name, self.namespace, self.identity, self.cluster.api)
        return LeaderElection(Config(lock, DURATION, RENEW_WITHIN, LOOK, _nothing, _nothing))
