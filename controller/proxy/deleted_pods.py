"""The Pods that were deleted, from a watch of their metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cachetools import FIFOCache

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED: Final = 20_000
"""Most deleted Pods to remember: a process that outlives its Pod continues to report for a while."""


class PodUids:
    """Implements `members.Pods`, and the Reflector's `Sink`."""

    def __init__(
        self, gone: Callable[[str], None] = lambda _uid: None, *, remembered: int = REMEMBERED
    ) -> None:
        """`gone` is called with the uid of each Pod that is gone."""
        self.gone = gone
        self._uids: dict[tuple[str, str], str] = {}
        self._ended: FIFOCache[str, None] = FIFOCache(remembered)

    def has_ended(self, uid: str) -> bool:
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

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted Pod."""
        del kind
        if uid := self._uids.pop((namespace, name), ""):
            self._ended[uid] = None
            self.gone(uid)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Nothing to do: Pods that are unknown are not judged."""
