"""Service accounts of pods whose evaluators read flags from the API server, by namespace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from controller.injection.names import FLAG_READER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SELECTOR: Final = f"{FLAG_READER}=true"


class ReaderPods:
    """Implements `kube.reflector.Sink`."""

    def __init__(self, wake: Callable[[str], None], views: Iterable[str]) -> None:
        """`wake` receives each namespace that a pod with another account comes to; `views`: the namespaces
        that are listed one by one; one that is empty stands for all.
        """
        self.known = asyncio.Event()
        """Set once all pods were reported."""
        self._wake = wake
        self._views = set(views)
        self._accounts: dict[str, dict[str, str]] = {}
        """By namespace, then by pod."""

    def accounts(self, namespace: str) -> list[str]:
        """Their names, sorted."""
        return sorted(set(self._accounts.get(namespace, {}).values()))

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """A pod is as `body` says."""
        del kind
        meta = body["metadata"]
        account = str((meta.get("annotations") or {}).get(FLAG_READER) or "default")
        there = self._accounts.setdefault(meta["namespace"], {})
        if there.get(meta["name"]) != account:
            there[meta["name"]] = account
            self._wake(meta["namespace"])

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """A pod is gone. Its account keeps its right until the next look: another may be on its way."""
        del kind
        there = self._accounts.get(namespace, {})
        there.pop(name, None)
        if not there:
            self._accounts.pop(namespace, None)

    def listed(self, kind: str, namespace: str) -> None:
        """All pods of the namespace, or of all, were reported."""
        del kind
        self._views.discard(namespace)
        if not self._views:
            self.known.set()
