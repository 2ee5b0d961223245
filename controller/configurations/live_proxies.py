"""Finds the proxies that live, by their Leases: receipts of a dead one do not count. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.receipt import LEASE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

DURATION: Final = 15.0
"""Seconds after which a Lease that does not change is its holder's no more. Its times are of another clock,
and are only compared.
"""


@dataclass(slots=True)
class _Seen:
    renewed: str
    at: float


@dataclass(slots=True)
class LiveProxies:
    """By identity, in seconds of one monotonic clock. Who was met lives until its Lease has had time to be
    seen.
    """

    _seen: dict[str, _Seen] = field(default_factory=dict)

    def track(self, identity: str, now: float) -> None:
        """Something that it wrote was seen."""
        self._seen.setdefault(identity, _Seen("", now))

    def learn(self, leases: Mapping[str, str], now: float) -> frozenset[str]:
        """All Leases there are, by name, each with when it was renewed last; returns who died since the last
        call.
        """
        for name, renewed in leases.items():
            identity = name.removeprefix(LEASE_PREFIX)
            known = self._seen.get(identity)
            # A Lease without a time was made and never held.
            if renewed and (known is None or known.renewed != renewed):
                self._seen[identity] = _Seen(renewed, now)
        dead = frozenset(
            identity
            for identity, seen in self._seen.items()
            if now - seen.at >= DURATION or (seen.renewed and LEASE_PREFIX + identity not in leases)
        )
        for identity in dead:
            del self._seen[identity]
        return dead

    @property
    def alive(self) -> list[str]:
        """Their identities, sorted."""
        return sorted(self._seen)
