"""Pods of one label, as a watch reports them. No I/O."""

from __future__ import annotations

import asyncio
import sys
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import POD
from controller.api.meta import ObjectKey, Resource, owner_of
from controller.pods.flag_file import FlagFile, files_of_pod
from controller.pods.installation import FLAG_FILES
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.informer import Informer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


FILES_SELECTOR: Final = f"{FLAG_FILES}=true"
_TEXT: Final = "text"


class MarkedPods:
    """The pods of one label, with the text that matters of each. An informer of its own, since others of a
    process hold the pods of another label.
    """

    def __init__(
        self,
        views: Collection[str],
        read: Callable[[Mapping[str, Any]], str] = lambda _: "",
        wake: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the listed namespaces (an empty one for all), `read`, which returns the text of a pod's
        metadata, and `wake`, which receives each namespace in which a pod with a new text appears.
        """

        def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
            meta = body["metadata"]
            return Resource(_key(meta), "", 0, "", annotations=_text(read(meta)))

        self.came = asyncio.Event()
        """Set when the first pod appears."""
        self.informer = Informer(Cache(), {POD.kind: transform})
        self.informer.store.react(self._on_change)
        self._wake = wake
        self._views = views
        self._count = 0

    @property
    def any(self) -> bool:
        """Whether there are pods."""
        return self._count > 0

    @property
    def has_listed(self) -> bool:
        """Whether all pods were reported."""
        return self.informer.has_listed((POD.kind,), self._views)

    async def wait_listed(self) -> None:
        """Wait until all pods were reported."""
        await self.informer.wait_listed((POD.kind,), self._views)

    def texts(self, namespace: str) -> list[str]:
        """Return the distinct texts of a namespace's pods, sorted."""
        return sorted({pod.annotations[_TEXT] for pod in self.informer.store.of_kind(POD.kind, namespace)})

    def _on_change(self, change: Change) -> None:
        before, after = change.before, change.after
        self._count += (after is not None) - (before is not None)
        if before is None and self._count == 1:
            self.came.set()
        # A deleted pod wakes nobody: a successor may follow.
        if after is not None and (before is None or before.annotations != after.annotations):
            self._wake(after.namespace)


@lru_cache(maxsize=1024)
def _text(text: str) -> Mapping[str, str]:
    """One mapping for all pods that have the text."""
    return MappingProxyType({_TEXT: text})


def _key(meta: Mapping[str, Any]) -> ObjectKey:
    """There are many pods, in few namespaces."""
    return ObjectKey(POD.kind, sys.intern(meta["namespace"]), meta["name"])


def _file_names(pod: Resource) -> list[str]:
    meta = {"namespace": pod.namespace, "annotations": pod.annotations}
    return [file.name for file in files_of_pod(meta)]


_BY_FILE: Final = Index("pods by file", frozenset({POD.kind}), _file_names)


class FilePods:
    """The pods whose evaluators read flags from ConfigMaps, by flag set."""

    def __init__(self, wake: Callable[[FlagFile], None]) -> None:
        """`wake` receives each file that a pod begins to read."""
        self.informer = Informer(Cache([_BY_FILE]), {POD.kind: _file_pod})
        self.informer.store.react(self._on_change)
        self._wake = wake

    def readers(self, file: FlagFile) -> list[Resource]:
        """The pods that read `file`, each with a reference to the object that manages it, or to itself."""
        return self.informer.store.find(_BY_FILE, file.namespace, file.name)

    def _on_change(self, change: Change) -> None:
        if change.after is not None and change.before != change.after:
            for name in _file_names(change.after):
                self._wake(FlagFile(change.after.namespace, name))


def _file_pod(body: Mapping[str, Any], _known: Resource | None) -> Resource:
    meta = body["metadata"]
    itself = {"apiVersion": "v1", "kind": POD.kind, "name": meta["name"], "uid": meta["uid"]}
    files = {FLAG_FILES: ",".join(file.name for file in files_of_pod(meta))}
    return Resource(_key(meta), meta["uid"], 0, "", annotations=files, owners=(owner_of(meta) or itself,))
