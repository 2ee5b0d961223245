"""The proxy on demand: its Deployment has replicas while clients follow flags through it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from controller.api import flagreceipt
from controller.api.flagreceipt import FlagReceiptStatus
from controller.pods.installation import PROXIED
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.api.meta import Resource
    from controller.pods.marked_pods import MarkedPods
    from controller.runtime.cache import Cache

log = logging.getLogger(__name__)

SELECTOR: Final = f"{PROXIED}=true"
"""Selects pods whose evaluators, or applications, ask the proxy."""
DEPLOYMENT: Final = "flagstaff-proxy"
IDLE: Final = 600.0
"""Seconds without clients after which it is scaled to 0."""
CHECK_SECONDS: Final = 30.0
"""Seconds from one check to the next."""


class Scale(Protocol):
    """Replicas of Deployments. Every method raises a Setback."""

    async def replicas(self, namespace: str, name: str) -> int | None:
        """Return `spec.replicas`; None without a Deployment."""

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Set `spec.replicas`."""


@dataclass(slots=True)
class ProxyScale:
    """Scales from and to 0; otherwise, an autoscaler or a person may set the replicas."""

    scale: Scale
    objects: Cache
    pods: MarkedPods
    namespace: str
    wanted: int
    """Replicas when scaled from 0."""
    clock: Callable[[], float]
    """Seconds of a monotonic clock."""
    _asked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._asked_at = self.clock()

    async def run(self) -> None:
        """Scale until cancelled. A new leader starts without history."""
        await self.pods.wait_listed()
        self._asked_at = self.clock()
        while True:
            self.pods.came.clear()
            try:
                await self.adjust()
            except Setback as setback:
                log.warning("Deployment %s: %s", DEPLOYMENT, setback.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self.pods.came.wait()

    async def adjust(self) -> None:
        """Check the clients once, and scale. Raises Setback."""
        asked = self.pods.any or any(map(_has_members, self.objects.of_kind(flagreceipt.KIND)))
        if asked:
            self._asked_at = self.clock()
        elif self.clock() - self._asked_at < IDLE:
            return
        replicas = await self.scale.replicas(self.namespace, DEPLOYMENT)
        if replicas is None:
            log.warning(
                "there is no Deployment %s to scale; apply the component proxy of deploy/", DEPLOYMENT
            )
        elif asked and replicas == 0:
            log.info("pods ask for flags: the proxy gets %d replicas", self.wanted)
            await self.scale.scale(self.namespace, DEPLOYMENT, self.wanted)
        elif not asked and replicas > 0:
            log.info("no pod asks for flags: the proxy's %d replicas go", replicas)
            await self.scale.scale(self.namespace, DEPLOYMENT, 0)


def _has_members(receipt: Resource) -> bool:
    """Whether a FlagReceipt shows subscribers."""
    status = FlagReceiptStatus.of(receipt)
    return bool(status.delivered) or any(group.count for group in status.groups)
