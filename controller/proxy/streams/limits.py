"""Limits of the number of streams, in all and from one address. Pure."""

from __future__ import annotations

from collections import Counter

from evaluator.http.messages import Code, RpcError


class StreamLimits:
    """Counts streams, and refuses those beyond the limits."""

    def __init__(self, most: int, most_per_host: int) -> None:
        self.most = most
        self.most_per_host = most_per_host
        self._hosts: Counter[str] = Counter()
        self.taken = 0
        """Streams that are open."""
        self.refused = 0
        """Streams that were refused so far."""

    @property
    def hosts(self) -> int:
        """How many addresses they come from."""
        return len(self._hosts)

    def take(self, host: str) -> None:
        """One more from `host`. Raises RpcError RESOURCE_EXHAUSTED where that is one too many."""
        if self.taken >= self.most or self._hosts[host] >= self.most_per_host:
            self.refused += 1
            if not self._hosts[host]:
                del self._hosts[host]
            raise RpcError(Code.RESOURCE_EXHAUSTED, "too many streams; try another replica")
        self._hosts[host] += 1
        self.taken += 1

    def give(self, host: str) -> None:
        """One less from `host`."""
        self.taken -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]


def host_of(peer: str) -> str:
    """The address of a peer without its port."""
    return peer.rpartition(":")[0] or peer
