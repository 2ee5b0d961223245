"""Writes FlagReceipt objects: at most one write a second for a flag set while its receipts change, none while
they do not.

A Lease says that this proxy lives; once it is no longer renewed, the leader deletes the proxy's FlagReceipts.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.featureflagconfiguration import KIND as CONFIGURATION
from controller.api.flagreceipt import KIND, LEASE_PREFIX, PROXY_LABEL, receipt_name
from controller.api.flagset import LABEL
from controller.api.meta import API_VERSION, Resource
from controller.runtime.setbacks import Setback
from evaluator.host.times import micro_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.delivery.claims import Place
    from controller.proxy.receipts import Receipts
    from controller.runtime.cache import Applier
    from controller.runtime.queue import KeyedQueue

_log = logging.getLogger(__name__)

DURATION: Final = 15
"""Seconds after which the leader takes a proxy that does not renew its Lease for dead."""
SETTLE: Final = 0.05
"""Seconds for which a change waits for others to come."""


@dataclass(frozen=True, slots=True)
class RecorderTiming:
    """Seconds."""

    tick: float = 1.0
    renew: float = 5.0
    late: float = 10.0
    """Without a renewed Lease, after which the leader may have taken this proxy for dead."""
    pace: float = 1.0
    """Between two writes of one flag set."""
    again: float = 60.0
    """After which a receipt is applied again, as it may be gone; if it is there, that writes nothing."""
    again_each: float = 0.05
    """The same, for each flag set, where that is more."""


@dataclass(frozen=True, slots=True)
class _Applied:
    owner: str
    """The uid."""
    status: dict[str, Any]
    """Empty: what is in the cluster is not known."""
    at: float
    """Time on the loop's clock."""


@dataclass(slots=True)
class Recorder:
    """Writes what `receipts` knows, as the proxy `identity`, whose Lease is in `namespace`."""

    receipts: Receipts
    writer: Applier
    identity: str
    namespace: str
    now: Callable[[], datetime]
    queue: KeyedQueue[Place]
    """Flag sets whose receipts have changed, or are to be applied again."""
    timing: RecorderTiming = RecorderTiming()
    writes: int = 0
    _applied: dict[Place, _Applied] = field(default_factory=dict)
    _renewed: float = 0.0

    async def run(self) -> None:
        """Record until cancelled, and keep the Lease."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_lease())
            tasks.create_task(self.record())

    async def record(self) -> None:
        """Record until cancelled, where no other process asks whether this one lives."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            tasks.create_task(self.queue.work(self.write, _log_unwritten))

    async def close(self) -> None:
        """Delete the Lease, so that the leader need not wait for it to run out. Never raises."""
        try:
            await self.writer.delete(
                "coordination.k8s.io/v1", "Lease", self.namespace, LEASE_PREFIX + self.identity
            )
        except Setback as setback:
            _log.warning("the Lease was not released: %s", setback.message)

    async def _tick(self) -> None:
        clock = asyncio.get_running_loop().time
        before = clock()
        while True:
            await asyncio.sleep(self.timing.tick)
            now = clock()
            self.receipts.tick(now - before)
            before = now

    async def write(self, place: Place) -> None:
        """Write the receipt of a flag set, unless what is written says the same."""
        subscribers, applied = self.receipts.subscribers(place), self._applied.get(place)
        if subscribers is None or subscribers.empty:
            await self._remove(place)
            return
        owner = subscribers.owner
        if owner is None or owner.key.kind != CONFIGURATION:
            # Kubernetes deletes the receipt with its owner.
            self._applied.pop(place, None)
            return
        now, pause = asyncio.get_running_loop().time(), max(self.timing.again, self._all_again)
        if applied is not None and applied.owner == owner.uid:
            rest = applied.at + self.timing.pace - now
            if rest > 0:
                self.queue.put(place, rest)
                return
        status = subscribers.status().model_dump(by_alias=True, exclude_none=True)
        same = applied is not None and (applied.owner, applied.status) == (owner.uid, status)
        if applied is not None and same and now - applied.at < pause:
            self.queue.put(place, applied.at + pause - now)
            return
        # A write that seems to fail may be done all the same; then the receipt has to be deleted one day.
        self._applied[place] = _Applied(owner.uid, {}, now)
        await self.writer.apply(self._manifest(owner, status), manager=self._manager)
        self._applied[place] = _Applied(owner.uid, status, now)
        self.writes += not same
        self.queue.put(place, pause)

    @property
    def _all_again(self) -> float:
        return self.timing.again_each * len(self._applied)

    async def _remove(self, place: Place) -> None:
        if place not in self._applied:
            return
        # A deletion that fails is tried again, so the receipt stays known until one succeeded.
        await self.writer.delete(API_VERSION, KIND, place[0], receipt_name(place[1], self.identity))
        self._applied.pop(place, None)
        self.writes += 1

    async def _keep_lease(self) -> None:
        """Renew the Lease, for ever. Where that was not possible for too long, or the Lease was deleted, the
        leader has deleted our FlagReceipts, so they are written again.
        """
        clock = asyncio.get_running_loop().time
        known = ""
        while True:
            try:
                body, _ = await self.writer.apply(self._lease(), manager=self._manager)
            except Setback as setback:
                _log.warning("the Lease was not renewed: %s", setback.message)
            else:
                late = bool(self._renewed) and clock() - self._renewed > self.timing.late
                if late or known not in {"", _uid(body)}:
                    self._write_all_again()
                known, self._renewed = _uid(body), clock()
            await asyncio.sleep(self.timing.renew)

    def _write_all_again(self) -> None:
        for place, applied in self._applied.items():
            self._applied[place] = _Applied(applied.owner, {}, applied.at)
        # Those without subscribers are deleted.
        for place in {*self._applied, *self.receipts.places()}:
            self.queue.put(place, SETTLE)

    @property
    def _manager(self) -> str:
        return f"flagstaff-proxy-{self.identity}"[:128]

    def _lease(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": LEASE_PREFIX + self.identity,
                "namespace": self.namespace,
                "labels": PROXY_LABEL,
            },
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": DURATION,
                "renewTime": micro_timestamp(self.now()),
            },
        }

    def _manifest(self, owner: Resource, status: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": receipt_name(owner.name, self.identity),
                "namespace": owner.namespace,
                # Of the owner's labels the catalog has the FlagSet's and the shard's.
                "labels": PROXY_LABEL | {key: text for key, text in owner.labels.items() if key != LABEL},
                "ownerReferences": [owner.owner_reference],
            },
            "spec": {"configuration": owner.name, "proxy": self.identity},
            "status": status,
        }


def _log_unwritten(place: Place, setback: Setback) -> None:
    _log.warning("the receipts of %s/%s: %s", *place, setback.message)


def _uid(body: Mapping[str, Any]) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")
