"""The pods that have one label, by namespace, each with the text that matters of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class MarkedPods:
    """Implements `kube.reflector.Sink`."""

    def __init__(
        self,
        views: Iterable[str],
        read: Callable[[Mapping[str, Any]], str] = lambda _: "",
        wake: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`views`: the namespaces that are listed one by one; one that is empty stands for all. `read` takes
        the text from a pod's metadata; `wake` receives each namespace that a pod with another text comes to.
        """
        self.known = asyncio.Event()
        """Set once all pods were reported."""
        self.came = asyncio.Event()
        """Set whenever there is a pod where there was none."""
        self._read = read
        self._wake = wake
        self._views = set(views)
        self._texts: dict[str, dict[str, str]] = {}
        """By namespace, then by pod."""

    @property
    def any(self) -> bool:
        """Whether there are pods."""
        return bool(self._texts)

    def texts(self, namespace: str) -> list[str]:
        """Those of a namespace's pods, each once, sorted."""
        return sorted(set(self._texts.get(namespace, {}).values()))

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """A pod is as `body` says."""
        del kind
        if not self._texts:
            self.came.set()
        meta = body["metadata"]
        text = self._read(meta)
        there = self._texts.setdefault(meta["namespace"], {})
        if there.get(meta["name"]) != text:
            there[meta["name"]] = text
            self._wake(meta["namespace"])

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """A pod is gone. This wakes nobody: another may be on its way."""
        del kind
        there = self._texts.get(namespace, {})
        there.pop(name, None)
        if not there:
            self._texts.pop(namespace, None)

    def listed(self, kind: str, namespace: str) -> None:
        """All pods of the namespace, or of all, were reported."""
        del kind
        self._views.discard(namespace)
        if not self._views:
            self.known.set()
