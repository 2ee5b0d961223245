"""The Namespaces, workloads, pods and FlagGrants that decide which flag sets pods follow."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from controller.api.flaggrant import KIND as FLAG_GRANT
from controller.api.kinds import NAMESPACE, POD
from controller.api.objects.meta import ObjectKey, Resource
from controller.delivery.standing_orders import DIRECT_SET, RECORD, SPELLINGS
from controller.runtime.objects.cache import Cache
from controller.runtime.user_text.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controller.delivery.standing_orders import OrderedPods

_log = logging.getLogger(__name__)

_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "creationTimestamp")
_TEXTS: Final = frozenset(key for pair in SPELLINGS for key in pair)


class OrderObjects:
    """Implements the Reflector's `Sink`: keeps of each object what orders depend on."""

    def __init__(self, scopes: Iterable[tuple[str, str]] = ()) -> None:
        """`scopes` are the kinds that are watched, each with a namespace; an empty one is all of them."""
        self.changed: Callable[[str], None] = lambda _namespace: None
        """Called with a namespace whose orders may have changed; empty: those of any namespace."""
        self.pod_changed: Callable[[str], None] = lambda _uid: None
        """Called with the uid of a labelled Pod whose record changed, or that is not there any more."""
        self._objects = Cache()
        self._unlisted = set(scopes)

    @property
    def synced(self) -> bool:
        """Whether all objects are known: before that, no order can be called missing."""
        return not self._unlisted

    # -- called by the watches

    def learn(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take in an object. A malformed one is logged and affects no other."""
        try:
            resource = _without_content(kind, body)
        except (KeyError, TypeError, AttributeError):
            _log.exception("a malformed %s was sent", kind)
            return
        known = self._objects.get(resource.key)
        self._objects.put(resource)
        if known is None or _content(known) != _content(resource):
            self._notify(known or resource)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        known = self._objects.get(ObjectKey(kind, namespace, name))
        if known is not None:
            self._objects.forget(known.key)
            self._notify(known)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))
        if self.synced:
            self.changed("")

    # -- asked by others

    def namespace(self, name: str) -> Resource | None:
        """The Namespace, if it is labelled with an order."""
        return self._objects.get(ObjectKey(NAMESPACE.kind, "", name))

    def workload(self, pods: OrderedPods) -> Resource | None:
        """The workload of `pods`, if admission has labelled it; of a CronJob's Job the CronJob."""
        workload = self._objects.get(ObjectKey(pods.kind, pods.namespace, pods.name))
        owners = () if workload is None else workload.owners
        owner = next((reference for reference in owners if reference.get("controller")), None)
        if owner is None:
            return workload
        return self._objects.get(ObjectKey(owner["kind"], pods.namespace, owner["name"])) or workload

    def grants(self, namespace: str) -> list[Resource]:
        """The FlagGrants of a namespace."""
        return self._objects.of_kind(FLAG_GRANT, namespace)

    def covers(self, namespace: str, pod: str, pods: OrderedPods) -> bool | None:
        """Whether a pod was injected as one of `pods`; None: no labelled pod of the name is known yet."""
        labelled = self._objects.get(ObjectKey(POD.kind, namespace, pod))
        if labelled is None:
            return None
        record = json_object(labelled.annotations.get(RECORD, "")) or {}
        return str(pods) in str(record.get("flagSet")).split(",")

    def _notify(self, known: Resource) -> None:
        key = known.key
        if key.kind == POD.kind:
            self.pod_changed(known.uid)
        elif self.synced:
            self.changed("" if key.kind == FLAG_GRANT else key.namespace or key.name)


def _without_content(kind: str, body: Mapping[str, Any]) -> Resource:
    meta = body["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    kept: dict[str, Any] = {name: meta[name] for name in _KEPT if name in meta}
    kept["annotations"] = {key: text for key, text in annotations.items() if key in _TEXTS or key == RECORD}
    if DIRECT_SET in annotations:
        # Up to 128 KiB, of which the presence matters alone.
        kept["annotations"][DIRECT_SET] = ""
    kept["labels"] = {key: text for key, text in labels.items() if key in _TEXTS}
    spec = {"spec": body.get("spec")} if kind == FLAG_GRANT else {}
    return Resource.of({"apiVersion": body.get("apiVersion", ""), "kind": kind, "metadata": kept, **spec})


def _content(resource: Resource) -> object:
    return resource.uid, resource.annotations, resource.labels, resource.spec, resource.owners
