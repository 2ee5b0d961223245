"""One proxy at work: what runs beside its streams, whether it is ready, and how it drains."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.proxy.access.access import VERDICT_SECONDS
from controller.runtime.event import event_of
from controller.runtime.process.lasting import forever

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from controller.proxy.receipts.recording import Recorder
    from controller.proxy.server import Proxy
    from controller.runtime.event import EventSink
    from evaluator.http.server.listener import Listener

_NOTICE_SECONDS: Final = 5.0
_SHED_SECONDS: Final = 0.1


class ProxyWatch(Protocol):
    """One watch of the cluster."""

    def age(self) -> float | None:
        """Seconds since the API server last confirmed it; None: never."""

    def page(self) -> dict[str, Any]:
        """Return the entry of `/readyz`."""

    async def run(self) -> None:
        """Watch until cancelled."""


@dataclass(slots=True)
class ProxyReplica:
    """A proxy, and what it works with."""

    proxy: Proxy
    sync: Listener
    recorder: Recorder
    watches: Sequence[ProxyWatch]
    """The watches of delivered objects."""
    beside: Sequence[ProxyWatch]
    """The watches of what readiness does not depend on: Pods, and objects with standing orders."""
    events: EventSink
    now: Callable[[], datetime]
    drain_delay: float
    """Seconds between the end of readiness and the end of the first stream."""
    drain_seconds: float
    """Seconds over which streams end."""
    draining: bool = field(default=False, init=False)

    def readiness(self) -> dict[str, Any]:
        """Ready once every kind was listed, and without an API server, too; says how old its view is."""
        ages = [age for watch in self.watches if (age := watch.age()) is not None]
        return {
            "ready": self.proxy.deliveries.synced and not self.draining,
            "draining": self.draining,
            "ageSeconds": round(max(ages), 1) if ages else None,
            "streams": self.proxy.hub.streams,
            "watches": [watch.page() for watch in self.watches],
        }

    async def work(self) -> None:
        """Watch objects, record receipts, post Events, and check subscribers' rights, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in (*self.watches, *self.beside):
                group.create_task(watch.run())
            for turn in (self.recorder.run, self._notice, self._revoke):
                group.create_task(forever(turn))

    async def drain(self) -> None:
        """Send subscribers elsewhere: no longer ready, then no new ones, then a few at a time."""
        self.draining = True
        await asyncio.sleep(self.drain_delay)
        service = self.proxy.service
        slices = max(1, int(self.drain_seconds / _SHED_SECONDS))
        portion = -(-self.proxy.hub.streams // slices)
        leaving = asyncio.create_task(self.sync.drain(self.drain_seconds + 1.0))
        for _ in range(slices):
            if not service.shed(portion):
                break
            await asyncio.sleep(_SHED_SECONDS)
        service.close()
        await leaving

    async def _notice(self) -> None:
        await asyncio.sleep(_NOTICE_SECONDS)
        if self.proxy.deliveries.synced:
            for resource, occurrence in (*self.proxy.notices.take(), *self.proxy.order_notices.take()):
                self.events.accept(event_of(resource, occurrence, self.now()))

    async def _revoke(self) -> None:
        await asyncio.sleep(VERDICT_SECONDS)
        await self.proxy.end_revoked()
