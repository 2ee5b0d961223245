"""Elects one leader among replicas by a Lease, as Kubernetes' own client-go does.

A standby believes that a Lease has expired once it did not change for its duration, measured by the standby's
own monotonic clock. Wall clocks are never compared, as the official package's election does: a standby whose
clock jumps would begin to lead beside the leader.

A Lease does not fence: a leader that was paused may act once more before it notices. It asks `holds` before
each write, and its applies carry the version of the object that they were decided on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from controller.kube.answers import path_of
from controller.runtime.clock import now
from controller.runtime.setbacks import Failed
from evaluator.host.times import micro_timestamp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from controller.kube.client import Cluster

log = logging.getLogger(__name__)

_API_VERSION: Final = "coordination.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Times of an election, in seconds. They let a standby act sooner than client-go's defaults do (15, 10
    and 2), and write a Lease 12 times a minute where client-go, which renews after each `retry`, would 30
    times.
    """

    duration: int = 10
    """After which an unrenewed Lease expires: a standby acts within this and two retries."""
    renew_within: float = 8.0
    """Without a renewal after which we stop leading ourselves, before anybody else may start."""
    renew: float = 5.0
    """From one renewal to the next: two more tries are left before `renew_within` ends."""
    retry: float = 1.5
    """Until a Lease is tried again that another holds, or that could not be renewed."""


@dataclass(slots=True)
class _Observed:
    """What this replica knows of the Lease."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    """The Lease's last known spec."""
    since: float = 0.0
    """Time at which that was first seen, by the event loop's clock."""
    renewable: dict[str, Any] = field(default_factory=dict)
    """The Lease as the API server answered our last write; empty: it must be read first."""
    ours_until: float = 0.0
    """Time until which no other replica takes the Lease, by the event loop's clock."""


@dataclass(frozen=True)
class Lease:
    """The Lease `name`, asked for as `identity`."""

    cluster: Cluster
    namespace: str
    name: str
    identity: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Written with every renewal: what the leader says of itself."""
    now: Callable[[], datetime] = now
    timing: LeaseTiming = LeaseTiming()
    _observed: _Observed = field(default_factory=_Observed)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, do `work` for as long as it is ours, and wait again. Ends when `work` does, or
        is cancelled.
        """
        while True:
            await self._wait_until_ours()
            log.info("%s leads", self.identity)
            if await self._work_while_ours(work):
                return
            log.warning(
                "%s no longer leads: another holds the Lease, or it was not renewed in time", self.identity
            )

    def holds(self) -> bool:
        """Whether the Lease is ours by our own clock."""
        return asyncio.get_running_loop().time() < self._observed.ours_until

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
            asked = asyncio.get_running_loop().time()
            if await self.take(self.timing.renew_within) == self.identity:
                self._observed.ours_until = asked + self.timing.renew_within
                return
            await asyncio.sleep(self.timing.retry)

    async def _work_while_ours(self, work: Callable[[], Awaitable[None]]) -> bool:
        """True if `work` ended by itself."""
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work())
        pause = self.timing.renew
        try:
            while (left := self._observed.ours_until - loop.time()) > 0:
                done, _ = await asyncio.wait({task}, timeout=min(pause, left))
                if done:
                    await task
                    return True
                # The lease runs from when it was asked for, not from when the answer came.
                asked = loop.time()
                holder = await self.take(self._observed.ours_until - asked)
                if holder not in {self.identity, None}:
                    break
                pause = self.timing.renew if holder else self.timing.retry
                if holder:
                    self._observed.ours_until = asked + self.timing.renew_within
        finally:
            self._observed.ours_until = 0.0
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return False

    async def take(self, left: float) -> str | None:
        """Take or renew the Lease if it is free or ours, and return who holds it then; None if the API server
        refuses, or does not answer in `left` seconds.
        """
        try:
            async with asyncio.timeout(min(left, self.timing.renew_within / 2)):
                # One write while nobody else wrote to it.
                known, self._observed.renewable = self._observed.renewable, {}
                if known and await self._write("PUT", known):
                    return self.identity
                return await self._read_and_take()
        except Failed as failure:
            log.warning("the Lease cannot be read or written: %s", failure.message)
        except TimeoutError:
            log.warning("the Lease cannot be read or written: the API server does not answer in time")
        return None

    async def _read_and_take(self) -> str | None:
        answer = await self.cluster.request("GET", self._path)
        if answer.status == HTTPStatus.NOT_FOUND:
            made = await self._write("POST", {"metadata": {"name": self.name}})
            return self.identity if made else None
        spec = answer.body.get("spec") or {}
        if answer.status != HTTPStatus.OK or "metadata" not in answer.body or not isinstance(spec, dict):
            log.warning("the Lease cannot be read: the API server answers %s, and no Lease", answer.status)
            return None
        if holder := self._another(spec):
            return holder
        return self.identity if await self._write("PUT", answer.body) else None

    def _another(self, spec: Mapping[str, Any]) -> str:
        """Return the other replica that holds the Lease now; empty if it is free or ours."""
        moment = asyncio.get_running_loop().time()
        if spec != self._observed.spec:
            self._observed.spec, self._observed.since = spec, moment
        holder = str(spec.get("holderIdentity") or "")
        seconds = spec.get("leaseDurationSeconds")
        expires = self._observed.since + (seconds if isinstance(seconds, int) else self.timing.duration)
        return holder if holder != self.identity and moment < expires else ""

    async def _write(self, method: str, lease: Mapping[str, Any]) -> bool:
        """Make the Lease ours, or renew it. False if the API server refuses, or another replica has written
        it since it was read.
        """
        before: Mapping[str, Any] = lease.get("spec") or {}
        moment = micro_timestamp(self.now())
        spec = {**before, "leaseDurationSeconds": self.timing.duration, "renewTime": moment}
        if before.get("holderIdentity") != self.identity:
            transitions = before.get("leaseTransitions", -1) + 1
            spec |= {"holderIdentity": self.identity, "acquireTime": moment, "leaseTransitions": transitions}
        path = self._path if method == "PUT" else path_of(_API_VERSION, "Lease", self.namespace)
        meta = dict(lease["metadata"])
        for name, said in (("labels", self.labels), ("annotations", self.annotations)):
            meta[name] = {**(meta.get(name) or {}), **said}
        answer = await self.cluster.request(method, path, {}, {**lease, "metadata": meta, "spec": spec})
        if answer.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            if answer.status != HTTPStatus.CONFLICT:
                log.warning("the Lease was not written: the API server answers %s", answer.status)
            return False
        self._observed.renewable = answer.body
        return True

    @property
    def _path(self) -> str:
        return path_of(_API_VERSION, "Lease", self.namespace, self.name)
