"""The uids of the Pods that exist, from a watch of their metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cachetools import FIFOCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REMEMBERED: Final = 20_000
"""Pods that went last: their goodbye may arrive after the event that they are gone."""


class PodUids:
    """Implements `members.Pods`."""

    def __init__(self, namespaces: Collection[str] = ("",)) -> None:
        """`namespaces` are listed one by one; an empty name is all of them."""
        self._unlisted = set(namespaces)
        self._uids: dict[tuple[str, str], str] = {}
        self._there: set[str] = set()
        self._ended: FIFOCache[str, None] = FIFOCache(REMEMBERED)

    def exists(self, uid: str) -> bool | None:
        """Whether a Pod with this uid is there; None until all namespaces were listed."""
        return None if self._unlisted else uid in self._there

    def ended(self, uid: str) -> bool:
        """Whether a Pod with this uid was there and is gone, for the last REMEMBERED of them."""
        return uid in self._ended

    def listed(self, namespace: str) -> None:
        """All Pods of a namespace were learnt."""
        self._unlisted.discard(namespace)

    def learn(self, place: tuple[str, str], uid: str) -> str:
        """A Pod is there. Returns the uid of the Pod that had the same name before; empty for none."""
        if self._uids.get(place) == uid:
            return ""
        gone = self.forget(place)
        if uid:
            self._uids[place] = uid
            self._there.add(uid)
        return gone

    def forget(self, place: tuple[str, str]) -> str:
        """A Pod is gone. Returns its uid; empty where it was not known."""
        uid = self._uids.pop(place, "")
        if uid:
            self._there.discard(uid)
            self._ended[uid] = None
        return uid


class PodSink:
    """Implements the Reflector's `Sink`."""

    def __init__(self, pods: PodUids, gone: Callable[[str], None]) -> None:
        """`gone` is called with the uid of each Pod that is gone."""
        self._pods = pods
        self._gone = gone

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """A Pod is there."""
        del kind
        meta = body.get("metadata") or {}
        place = str(meta.get("namespace") or ""), str(meta.get("name") or "")
        if gone := self._pods.learn(place, str(meta.get("uid") or "")):
            self._gone(gone)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """A Pod is gone."""
        del kind
        if gone := self._pods.forget((namespace, name)):
            self._gone(gone)

    def listed(self, kind: str, namespace: str) -> None:
        """All of a namespace were reported."""
        del kind
        self._pods.listed(namespace)
