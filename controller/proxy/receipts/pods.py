"""Which Pods there are: uids alone, of a watch that is told metadata alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

KIND: Final = "Pod"
REMEMBERED: Final = 20_000
"""Pods that went last: what they said on their way out may come after the news that they are gone."""


@dataclass(slots=True)
class PodWatch:
    """Told by the watch; tells of each Pod that is gone."""

    gone: Callable[[str], None] = lambda _uid: None
    namespaces: frozenset[str] = frozenset({""})
    """Each of which is told on its own; empty text: all of them together."""
    _listed: set[str] = field(default_factory=set)
    _uids: dict[tuple[str, str], str] = field(default_factory=dict)
    _there: set[str] = field(default_factory=set)
    _ended: dict[str, None] = field(default_factory=dict)

    def exists(self, uid: str) -> bool | None:
        """Whether a Pod with this uid is there; None where that is not known."""
        return uid in self._there if self.synced else None

    def ended(self, uid: str) -> bool:
        """Whether a Pod with this uid was there and is gone, for the last REMEMBERED of them."""
        return uid in self._ended

    @property
    def synced(self) -> bool:
        """Whether all of them were told."""
        return self._listed >= self.namespaces

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """A Pod is there."""
        meta = body.get("metadata") or {}
        place, uid = _place(meta), str(meta.get("uid") or "")
        known = self._uids.get(place)
        if known == uid:
            return
        # The name is another Pod's: that the first went was not told.
        self.forget(kind, *place)
        if uid:
            self._uids[place] = uid
            self._there.add(uid)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """A Pod is gone."""
        del kind
        uid = self._uids.pop((namespace, name), None)
        if uid is not None:
            self._there.discard(uid)
            self._ended[uid] = None
            if len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]
            self.gone(uid)

    def listed(self, kind: str, namespace: str) -> None:
        """All of a namespace were told."""
        del kind
        self._listed.add(namespace)


def _place(meta: dict[str, Any]) -> tuple[str, str]:
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")
