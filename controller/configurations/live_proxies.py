"""Finds the proxies that live, by their Leases, and removes receipts and Lease of each that died."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from controller.api import flagreceipt
from controller.api.kinds import LEASE
from controller.runtime.setbacks import Setback
from controller.runtime.shards import LeaseReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache, Change

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""Seconds between two reads of the Leases."""
DURATION: Final = 15.0
"""Seconds after which a Lease that was not renewed has expired, by our clock and not by its own times."""


@dataclass(slots=True)
class LiveProxies:
    """Decides by one monotonic clock which proxies are alive: a seen proxy, until its Lease expires."""

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    """For each proxy, the time of its Lease's last renewal by its own clock, and by ours."""

    def track(self, identity: str, now: float) -> None:
        """Note that something was seen that this proxy wrote."""
        self._seen.setdefault(identity, ("", now))

    def learn(self, leases: Mapping[str, str], now: float) -> frozenset[str]:
        """Take in when each Lease was renewed, by name; return the proxies that died since the last call."""
        for name, renewed in leases.items():
            identity = name.removeprefix(flagreceipt.LEASE_PREFIX)
            known = self._seen.get(identity)
            # A Lease without a time was made and never held.
            if renewed and (known is None or known[0] != renewed):
                self._seen[identity] = (renewed, now)
        dead = frozenset(
            identity
            for identity, (renewed, at) in self._seen.items()
            if now - at >= DURATION or (renewed and flagreceipt.LEASE_PREFIX + identity not in leases)
        )
        for identity in dead:
            del self._seen[identity]
        return dead

    @property
    def alive(self) -> list[str]:
        """Return the identities of live proxies, sorted."""
        return sorted(self._seen)


class Leases(LeaseReader, Protocol):
    """Reads Leases; deletes objects."""

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """Delete an object, if it is there and, where `uid` is given, still that one. Raises Setback."""


@dataclass(frozen=True, slots=True)
class ProxyFollower:
    """Keeps `proxies` up to date."""

    proxies: LiveProxies
    cache: Cache
    cluster: Leases
    namespace: str
    """The namespace of the proxies' Leases."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    pause: float = POLL_SECONDS
    """Seconds."""

    def on_change(self, change: Change) -> None:
        """A receipt that appears or changes shows that its proxy was there."""
        if change.after is not None and change.after.key.kind == flagreceipt.KIND:
            self._track(change.after)

    async def poll(self) -> None:
        """Read the Leases once, then pause. Reads nothing before a proxy has written a receipt."""
        for resource in self.cache.of_kind(flagreceipt.KIND):
            self._track(resource)
        if self.proxies.alive:
            try:
                leases = await self.cluster.leases(self.namespace, flagreceipt.PROXY_LABEL)
                renewed = {
                    name: str((lease.get("spec") or {}).get("renewTime") or "")
                    for name, lease in leases.items()
                }
                await self._delete_dead(self.proxies.learn(renewed, self.clock()), renewed)
            except Setback as setback:
                log.warning("the proxies' Leases cannot be read: %s", setback.message)
        await asyncio.sleep(self.pause)

    def _track(self, receipt: Resource) -> None:
        if proxy := flagreceipt.pair_of(receipt)[1]:
            self.proxies.track(proxy, self.clock())

    async def _delete_dead(self, dead: frozenset[str], leases: Mapping[str, str]) -> None:
        for resource in self.cache.of_kind(flagreceipt.KIND):
            if flagreceipt.pair_of(resource)[1] in dead:
                key = resource.key
                await self.cluster.delete(
                    resource.api_version, key.kind, key.namespace, key.name, uid=resource.uid
                )
                # Its event comes later.
                self.cache.forget(key)
        for name in leases:
            if name.removeprefix(flagreceipt.LEASE_PREFIX) in dead:
                await self.cluster.delete(LEASE.api_version, LEASE.kind, self.namespace, name)
