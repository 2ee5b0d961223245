"""Writes FlagReceipt objects: at most one write a second for a flag set while its receipts change, none while
they do not.

A Lease says that this proxy lives; once it is no longer renewed, the leader deletes the proxy's FlagReceipts.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.configuration import KIND as CONFIGURATION
from controller.api.objects.meta import API_VERSION
from controller.api.receipt import KIND, LEASE_PREFIX, PROXY_LABEL, receipt_name
from controller.runtime.objects.applier import Applier
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.api.objects.meta import Resource
    from controller.delivery.claims import Place
    from controller.proxy.receipts.receipts import Receipts
    from controller.runtime.reconciling.queue import KeyedQueue

_log = logging.getLogger(__name__)

TICK: Final = 1.0
RENEW: Final = 5.0
DURATION: Final = 15
"""Seconds after which the leader takes a proxy that does not renew its Lease for dead."""
LOOK: Final = 60.0
"""Seconds between two checks whether a receipt is still there: it may have been deleted by hand."""
MOST_LOOKS: Final = 100
"""Checks at a time, every RENEW seconds."""
SETTLE: Final = 0.05
"""Seconds for which a change waits for others to come."""
PACE: Final = 1.0
"""Seconds between two writes of one flag set."""


class ReceiptWriter(Applier, Protocol):
    """Applies, deletes, and sees what is there."""

    async def uid(self, api_version: str, kind: str, namespace: str, name: str) -> str | None:
        """Return the uid of the existing object, or None. Raises Setback."""


@dataclass(slots=True)
class _Written:
    owner: str
    """The uid."""
    status: dict[str, Any]
    """Empty: what is in the cluster is not known, and is to be written."""
    uid: str
    """The receipt's own; empty where no answer to a write has come yet."""
    look: float
    """Time, on the loop's clock, at which to check whether it exists."""


class Schedule:
    """The flag sets to write; `changed` fills its queue, the Recorder empties it."""

    def __init__(self, queue: KeyedQueue[Place], clock: Callable[[], float]) -> None:
        """`clock` is the queue's: monotonic seconds."""
        self.queue = queue
        self._clock = clock
        self._begun: dict[Place, float] = {}

    def changed(self, place: Place) -> None:
        """The receipts of a flag set have changed."""
        self.queue.put(place, max(SETTLE, self._rest(place)))

    def is_early(self, place: Place) -> bool:
        """Whether the flag set was written a moment ago: a change that came as that began is put off."""
        rest = self._rest(place)
        if rest > 0:
            self.queue.put(place, rest)
        return rest > 0

    def begin(self, place: Place) -> float:
        """Note that the flag set is being written, and return the time."""
        now = self._begun[place] = self._clock()
        return now

    def forget(self, place: Place) -> None:
        """Drop a flag set without subscribers."""
        self._begun.pop(place, None)

    def _rest(self, place: Place) -> float:
        """Seconds until the flag set may be written again."""
        begun = self._begun.get(place)
        return 0.0 if begun is None else PACE - (self._clock() - begun)


@dataclass(slots=True)
class Recorder:
    """Writes what `receipts` knows, as the proxy `identity`, whose Lease is in `namespace`."""

    receipts: Receipts
    writer: ReceiptWriter
    identity: str
    namespace: str
    now: Callable[[], datetime]
    schedule: Schedule
    """Filled by `Receipts.changed`."""
    writes: int = 0
    _written: dict[Place, _Written] = field(default_factory=dict)
    _renewed: float = 0.0

    async def run(self) -> None:
        """Record until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_lease())
            tasks.create_task(self._tick())
            tasks.create_task(self._look_after())
            tasks.create_task(self.schedule.queue.work(self._record, _log_unwritten))

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
            await asyncio.sleep(TICK)
            now = clock()
            self.receipts.tick(now - before)
            before = now

    async def _record(self, place: Place) -> None:
        subscribers, known = self.receipts.subscribers(place), self._written.get(place)
        if subscribers is None or subscribers.empty:
            await self._remove(place)
            return
        owner = subscribers.owner
        if owner is None or owner.key.kind != CONFIGURATION:
            # Kubernetes deletes the receipt with its owner.
            self._written.pop(place, None)
            return
        if self.schedule.is_early(place):
            return
        # Before it is known whether the status differs: summing up needs a pause even if nothing changed.
        now = self.schedule.begin(place)
        status = subscribers.status().model_dump(by_alias=True, exclude_none=True)
        if known is not None and (known.owner, known.status) == (owner.uid, status):
            return
        if known is None:
            # A write that seems to fail may be done all the same; then the receipt has to be deleted one day.
            self._written[place] = _Written(owner.uid, {}, "", now + RENEW)
        body, _ = await self.writer.apply(self._manifest(owner, status), manager=self._manager)
        # The garbage collector may delete a receipt of the former owner after it was given to the new one.
        kept = known is not None and known.owner == owner.uid
        look = known.look if known is not None and kept else now + RENEW
        self._written[place] = _Written(owner.uid, status, _uid(body), look)
        self.writes += 1

    async def _remove(self, place: Place) -> None:
        self.schedule.forget(place)
        written = self._written.get(place)
        if written is None:
            return
        # A deletion that fails is tried again, so the receipt stays known until one succeeded.
        written.status = {}
        name = receipt_name(place[1], self.identity)
        await self.writer.delete(API_VERSION, KIND, place[0], name)
        self._written.pop(place, None)
        self.writes += 1

    async def _look_after(self) -> None:
        """Write again what another client deleted, for ever: while nothing changes nothing else would."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(RENEW)
            now = clock()
            due = [place for place, each in self._written.items() if each.look <= now]
            for place in due[:MOST_LOOKS]:
                try:
                    await self._look(place, now)
                except Setback as setback:
                    _log.warning("the receipts of %s/%s: %s", *place, setback.message)

    async def _look(self, place: Place, now: float) -> None:
        written, name = self._written.get(place), receipt_name(place[1], self.identity)
        if written is None:
            return
        found = await self.writer.uid(API_VERSION, KIND, place[0], name)
        if self._written.get(place) is not written:
            return
        if found == written.uid:
            written.look = now + LOOK
            return
        written.status, written.look = {}, now + RENEW
        self.schedule.changed(place)

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
                late = bool(self._renewed) and clock() - self._renewed > DURATION - RENEW
                if late or known not in {"", _uid(body)}:
                    self._write_all_again()
                known, self._renewed = _uid(body), clock()
            await asyncio.sleep(RENEW)

    def _write_all_again(self) -> None:
        for written in self._written.values():
            written.status = {}
        # Those without subscribers are deleted.
        for place in {*self._written, *self.receipts.places()}:
            self.schedule.changed(place)

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
                "ownerReferences": [owner.owner_reference],
            },
            "spec": {"configuration": owner.name, "proxy": self.identity},
            "status": status,
        }


def _log_unwritten(place: Place, setback: Setback) -> None:
    _log.warning("the receipts of %s/%s: %s", *place, setback.message)


def _uid(body: Mapping[str, Any]) -> str:
    return str((body.get("metadata") or {}).get("uid") or "")
