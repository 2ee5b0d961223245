"""From receipts to FlagReceipt objects: at most one write a second for a flag set while it changes, none while it does not.

A Lease says that this proxy lives; once it is not renewed, the leader drops what the proxy wrote.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.configuration import KIND as CONFIGURATION
from controller.api.meta import API_VERSION
from controller.api.receipt import KIND, LEASE_PREFIX, PROXY_LABEL, receipt_name
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.proxy.receipts import Place, Receipts
    from controller.runtime.applier import Applier
    from controller.runtime.queue import KeyedQueue

_log = logging.getLogger(__name__)

SETTLE: Final = 0.05
"""Seconds that a change waits for others to come."""
PACE: Final = 1.0
"""Seconds between two writes of one flag set."""
TICK: Final = 1.0
RENEW: Final = 5.0
DURATION: Final = 15
"""Seconds after which a proxy that does not renew its Lease is taken for dead."""
WORKERS: Final = 4


@dataclass(slots=True)
class _Written:
    owner: str
    """The uid."""
    status: dict[str, Any]


@dataclass(slots=True)
class Recorder:
    """Writes what `receipts` knows, as the proxy `identity`, whose Lease is in `namespace`."""

    receipts: Receipts
    writer: Applier
    identity: str
    namespace: str
    now: Callable[[], datetime]
    queue: KeyedQueue[Place]
    writes: int = 0
    _written: dict[Place, _Written] = field(default_factory=dict)
    _at: dict[Place, float] = field(default_factory=dict)
    _renewed: float = 0.0

    async def run(self) -> None:
        """Record until cancelled."""
        self.receipts.changed = self.changed
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_lease())
            tasks.create_task(self._tick())
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    def changed(self, place: Place) -> None:
        """What is known of a flag set changed."""
        since = asyncio.get_running_loop().time() - self._at.get(place, -PACE)
        self.queue.put(place, max(SETTLE, PACE - since))

    async def close(self) -> None:
        """Give the Lease up, so that others need not wait for it to run out. Never raises."""
        try:
            await self.writer.delete(
                "coordination.k8s.io/v1", "Lease", self.namespace, LEASE_PREFIX + self.identity
            )
        except Setback as setback:
            _log.warning("the Lease was not given up: %s", setback.message)

    async def _tick(self) -> None:
        clock = asyncio.get_running_loop().time
        before = clock()
        while True:
            await asyncio.sleep(TICK)
            now = clock()
            self.receipts.tick(now - before)
            before = now

    async def _work(self) -> None:
        while True:
            place = await self.queue.take()
            try:
                await self._record(place)
                self.queue.succeeded(place)
            except Setback as setback:
                _log.warning("the receipts of %s/%s: %s", *place, setback.message)
                self.queue.put_after_failure(place)
            finally:
                self.queue.done(place)

    async def _record(self, place: Place) -> None:
        flock, known = self.receipts.flock(place), self._written.get(place)
        if flock is None or flock.empty:
            await self._remove(place)
            return
        owner = flock.owner
        if owner is None or owner.key.kind != CONFIGURATION:
            # It goes with its owner.
            self._written.pop(place, None)
            return
        # Also what comes to the same was work: receipts that change nothing are no reason to sum up without a pause.
        self._at[place] = asyncio.get_running_loop().time()
        status = flock.status().model_dump(by_alias=True, exclude_none=True)
        if known is not None and (known.owner, known.status) == (owner.uid, status):
            return
        await self.writer.apply(self._manifest(owner, status), manager=self._manager)
        self._written[place] = _Written(owner.uid, status)
        self.writes += 1

    async def _remove(self, place: Place) -> None:
        self._at.pop(place, None)
        if self._written.pop(place, None) is None:
            return
        name = receipt_name(place[1], self.identity)
        await self.writer.delete(API_VERSION, KIND, place[0], name)
        self.writes += 1

    async def _keep_lease(self) -> None:
        """Renew it, for ever; where that was not possible for too long, what we wrote was dropped, and is written again."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                await self.writer.apply(self._lease(), manager=self._manager)
            except Setback as setback:
                _log.warning("the Lease was not renewed: %s", setback.message)
            else:
                if self._renewed and clock() - self._renewed > DURATION - RENEW:
                    self._written.clear()
                    for place in self.receipts.places():
                        self.changed(place)
                self._renewed = clock()
            await asyncio.sleep(RENEW)

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
                "renewTime": self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }

    def _manifest(self, owner: Resource, status: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                "name": receipt_name(owner.name, self.identity),
                "namespace": owner.namespace,
                "labels": PROXY_LABEL,
                "ownerReferences": [
                    {
                        "apiVersion": owner.api_version,
                        "kind": owner.key.kind,
                        "name": owner.name,
                        "uid": owner.uid,
                        "blockOwnerDeletion": False,
                    }
                ],
            },
            "spec": {"configuration": owner.name, "proxy": self.identity},
            "status": status,
        }
