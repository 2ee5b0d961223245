"""Limits of the number of streams: in all, from one address, and of one namespace. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from evaluator.http.messages import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping


class StreamLimits:
    """Counts streams, and refuses those beyond the limits."""

    def __init__(self, most: int, most_per_host: int, quota: int = 0) -> None:
        """`quota`: that callers of a namespace may have, 0: no limit."""
        self.most = most
        self.most_per_host = most_per_host
        self._quota = quota
        self._hosts: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self.taken = 0
        """Streams that are open."""
        self.refused = 0
        """Streams that were refused so far."""

    @property
    def hosts(self) -> int:
        """Return the number of addresses with streams."""
        return len(self._hosts)

    def by_namespace(self) -> dict[str, int]:
        """Open streams of callers whose namespace is known. Any thread may ask."""
        return dict(self._namespaces)

    def take(self, host: str, namespace: str = "") -> None:
        """Count a stream from `host`, of a caller of `namespace` (empty: unknown). Raises RpcError
        RESOURCE_EXHAUSTED if that is one too many.
        """
        try:
            self._require(host, namespace)
        except RpcError:
            self.refused += 1
            raise
        self._hosts[host] += 1
        if namespace:
            self._namespaces[namespace] += 1
        self.taken += 1

    def give(self, host: str, namespace: str = "") -> None:
        """Uncount a stream; takes the arguments of `take`."""
        self.taken -= 1
        for counted, name in ((self._hosts, host), (self._namespaces, namespace)):
            if name:
                counted[name] -= 1
                if not counted[name]:
                    del counted[name]

    def _require(self, host: str, namespace: str) -> None:
        if self.taken >= self.most or self._hosts.get(host, 0) >= self.most_per_host:
            raise RpcError(Code.RESOURCE_EXHAUSTED, "too many streams; try another replica")
        require_quota("streams", namespace, self._namespaces, self._quota, "--quota-streams")


def require_quota(noun: str, namespace: str, taken: Mapping[str, int], quota: int, option: str) -> None:
    """Raise RpcError RESOURCE_EXHAUSTED where callers of `namespace` have taken all that they may have."""
    most = quota if namespace else 0
    if most and taken.get(namespace, 0) >= most:
        message = f"{noun} of namespace {namespace}: all {most} of its quota are taken here ({option})"
        raise RpcError(Code.RESOURCE_EXHAUSTED, message)
