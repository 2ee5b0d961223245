"""Pods of one label, as a watch reports them. No I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import owner_of
from controller.pods.flag_file import FlagFile, files_of_pod
from controller.pods.installation import FLAG_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FILES_SELECTOR: Final = f"{FLAG_FILES}=true"


class MarkedPods:
    """Implements `kube.reflector.Sink`: by namespace, the pods with the text that matters of each."""

    def __init__(
        self,
        views: Iterable[str],
        read: Callable[[Mapping[str, Any]], str] = lambda _: "",
        wake: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take the listed namespaces (an empty one for all), `read`, which returns the text of a pod's
        metadata, and `wake`, which receives each namespace in which a pod with a new text appears.
        """
        self.known = asyncio.Event()
        """Set once all pods were reported."""
        self.came = asyncio.Event()
        """Set when the first pod appears."""
        self._read = read
        self._wake = wake
        self._views = set(views)
        self._texts: dict[str, dict[str, str]] = {}
        """Texts by namespace, then by pod."""

    @property
    def any(self) -> bool:
        """Whether there are pods."""
        return bool(self._texts)

    def texts(self, namespace: str) -> list[str]:
        """Return the distinct texts of a namespace's pods, sorted."""
        return sorted(set(self._texts.get(namespace, {}).values()))

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Take in the state of a pod."""
        del kind
        if not self._texts:
            self.came.set()
        meta = body["metadata"]
        text = self._read(meta)
        texts = self._texts.setdefault(meta["namespace"], {})
        if texts.get(meta["name"]) != text:
            texts[meta["name"]] = text
            self._wake(meta["namespace"])

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted pod, without waking: a successor may follow."""
        del kind
        texts = self._texts.get(namespace, {})
        texts.pop(name, None)
        if not texts:
            self._texts.pop(namespace, None)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all pods of the namespace, or of all, were reported."""
        del kind
        self._views.discard(namespace)
        if not self._views:
            self.known.set()


@dataclass(frozen=True, slots=True)
class FilePod:
    """The needed fields of a pod whose evaluator reads flags from ConfigMaps."""

    namespace: str
    name: str
    uid: str
    owner: Mapping[str, str]
    """A reference to the object that manages the pod, or to the pod itself."""
    files: tuple[FlagFile, ...]


class FilePods:
    """Implements `kube.reflector.Sink`: pods by flag set. `wake` receives files that a pod begins to read."""

    def __init__(self, wake: Callable[[FlagFile], None]) -> None:
        self._wake = wake
        self._pods: dict[tuple[str, str], FilePod] = {}
        self._readers: dict[FlagFile, dict[str, FilePod]] = {}
        """Pods by the file that they read, then by uid."""

    def readers(self, file: FlagFile) -> list[FilePod]:
        """The pods that read `file`."""
        return list(self._readers.get(file, {}).values())

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Take in the state of a pod."""
        del kind
        meta = body["metadata"]
        itself = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        owner = owner_of(meta) or itself
        pod = FilePod(meta["namespace"], meta["name"], meta["uid"], owner, files_of_pod(meta))
        known = self._pods.get((pod.namespace, pod.name))
        if pod == known:
            return
        self.forget("", pod.namespace, pod.name)
        self._pods[(pod.namespace, pod.name)] = pod
        for file in pod.files:
            self._readers.setdefault(file, {})[pod.uid] = pod
            self._wake(file)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted pod."""
        del kind
        pod = self._pods.pop((namespace, name), None)
        if pod is None:
            return
        for file in pod.files:
            readers = self._readers[file]
            del readers[pod.uid]
            if not readers:
                del self._readers[file]

    def end_listing(self, kind: str, namespace: str) -> None:
        """Do nothing: no caller waits for the list."""
