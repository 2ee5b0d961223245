"""Pods whose evaluators read flags from ConfigMaps, by flag set. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.injection.names import FLAG_FILES
from controller.injection.reading.files import FlagFile, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SELECTOR: Final = f"{FLAG_FILES}=true"


@dataclass(frozen=True, slots=True)
class FilePod:
    """What matters of one pod."""

    namespace: str
    name: str
    uid: str
    owner: Mapping[str, str]
    """As a reference: the object that manages the pod, or the pod itself."""
    files: tuple[FlagFile, ...]


class FilePods:
    """Implements `kube.reflector.Sink`; `wake` receives each file that a pod begins to read."""

    def __init__(self, wake: Callable[[FlagFile], None]) -> None:
        self._wake = wake
        self._pods: dict[tuple[str, str], FilePod] = {}
        self._readers: dict[FlagFile, dict[str, FilePod]] = {}
        """By uid."""

    def readers(self, file: FlagFile) -> list[FilePod]:
        """The pods that read `file`."""
        return list(self._readers.get(file, {}).values())

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """A pod is as `body` says."""
        del kind
        meta = body["metadata"]
        pod = FilePod(meta["namespace"], meta["name"], meta["uid"], _owner(meta), marked(meta))
        known = self._pods.get((pod.namespace, pod.name))
        if pod == known:
            return
        self.forget("", pod.namespace, pod.name)
        self._pods[(pod.namespace, pod.name)] = pod
        for each in pod.files:
            self._readers.setdefault(each, {})[pod.uid] = pod
            self._wake(each)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """A pod is gone."""
        del kind
        pod = self._pods.pop((namespace, name), None)
        if pod is None:
            return
        for each in pod.files:
            readers = self._readers[each]
            del readers[pod.uid]
            if not readers:
                del self._readers[each]

    def listed(self, kind: str, namespace: str) -> None:
        """Nothing waits for it."""


def _owner(meta: Mapping[str, Any]) -> dict[str, str]:
    """The one that manages the pod, else the first."""
    owners = meta.get("ownerReferences") or ()
    found = next((each for each in owners if each.get("controller")), owners[0] if owners else None)
    if found is None:
        return {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {name: str(found[name]) for name in ("apiVersion", "kind", "name", "uid")}
