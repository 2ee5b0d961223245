"""The uids of the Pods that exist, from a watch of their metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cachetools import FIFOCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REMEMBERED: Final = 20_000
"""Pods that went last: their goodbye may arrive after the event that they are gone."""


class PodUids:
    """Implements `members.Pods`, and the Reflector's `Sink`."""

    def __init__(
        self, namespaces: Collection[str] = ("",), gone: Callable[[str], None] = lambda _uid: None
    ) -> None:
        """`namespaces`: an empty name is all. `gone` is called with the uid of each Pod that is gone."""
        self.gone = gone
        self._unlisted = set(namespaces)
        self._uids: dict[tuple[str, str], str] = {}
        self._there: set[str] = set()
        self._ended: FIFOCache[str, None] = FIFOCache(REMEMBERED)

    def exists(self, uid: str) -> bool | None:
        """Return whether a Pod with this uid exists; None until all namespaces were listed."""
        return None if self._unlisted else uid in self._there

    def ended(self, uid: str) -> bool:
        """Return whether a Pod with this uid was deleted; the last REMEMBERED are known."""
        return uid in self._ended

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Add a Pod."""
        meta = body.get("metadata") or {}
        namespace, name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
        uid = str(meta.get("uid") or "")
        if self._uids.get((namespace, name)) == uid:
            return
        # One of that name was deleted, and this one made in its place.
        self.forget(kind, namespace, name)
        if uid:
            self._uids[namespace, name] = uid
            self._there.add(uid)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted Pod."""
        del kind
        if uid := self._uids.pop((namespace, name), ""):
            self._there.discard(uid)
            self._ended[uid] = None
            self.gone(uid)

    def listed(self, kind: str, namespace: str) -> None:
        """Note that all Pods of a namespace were reported."""
        del kind
        self._unlisted.discard(namespace)
