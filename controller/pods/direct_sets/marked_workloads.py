"""Workloads that admission has marked, as watches report them. No I/O."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controller.api.kinds import FLAG_CARRIERS
from controller.api.objects.meta import ObjectKey, Resource
from controller.pods.direct_sets.carried_flags import KINDS, carried_flags, is_run_of_cron_job
from controller.pods.direct_sets.workload_marks import record_in
from controller.pods.settings.installation import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_VERSIONS = {type_.kind: type_.api_version for type_ in FLAG_CARRIERS}


@dataclass(frozen=True, slots=True)
class MarkedWorkload:
    """What matters of a workload."""

    resource: Resource
    """The workload without its content."""
    text: str
    """The flags that it carries."""
    where: str
    """Their place, as messages name it."""
    by: str
    """Who applied the flags; empty where that is not known, or not to be said."""
    at: str
    """When; RFC 3339."""
    refusal: str = ""
    """Why its flags cannot be read; empty where they can."""

    @property
    def key(self) -> ObjectKey:
        """Kind, namespace and name."""
        return self.resource.key


class MarkedWorkloads:
    """Implements `kube.reflector.Sink` for each of FLAG_CARRIERS. `wake` receives the key of each workload
    that is new, deleted, no longer marked, or whose flags changed.
    """

    def __init__(
        self, views: Iterable[str], wake: Callable[[ObjectKey], None], *, authors: bool = True
    ) -> None:
        """`views`: the namespaces that are listed, an empty one for all; `authors`: whether the names of
        users are kept.
        """
        self.known = asyncio.Event()
        """Set once all workloads were reported."""
        self._wake = wake
        self._authors = authors
        self._unlisted = set(itertools.product(KINDS, views))
        self._workloads: dict[ObjectKey, MarkedWorkload] = {}

    def get(self, key: ObjectKey) -> MarkedWorkload | None:
        """The workload, if it is marked."""
        return self._workloads.get(key)

    def all(self) -> list[ObjectKey]:
        """The keys of all marked workloads."""
        return list(self._workloads)

    def keys_named(self, namespace: str, name: str) -> list[ObjectKey]:
        """The keys of the marked workloads of one name."""
        keys = (ObjectKey(kind, namespace, name) for kind in KINDS)
        return [key for key in keys if key in self._workloads]

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Take in the state of a workload."""
        workload = _marked_workload(kind, body)
        if not self._authors:
            workload = replace(workload, by="")
        known = self._workloads.get(workload.key)
        self._workloads[workload.key] = workload
        if known is None or _content(known) != _content(workload):
            self._wake(workload.key)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a workload that was deleted, or is marked no longer."""
        key = ObjectKey(kind, namespace, name)
        if self._workloads.pop(key, None) is not None:
            self._wake(key)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all workloads of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))
        if not self._unlisted:
            self.known.set()


def _marked_workload(kind: str, body: dict[str, Any]) -> MarkedWorkload:
    # A list leaves out what its items are.
    body = {**body, "apiVersion": _VERSIONS[kind], "kind": kind}
    meta = {name: text for name, text in body["metadata"].items() if name not in {"annotations", "labels"}}
    resource = Resource.of({"apiVersion": body["apiVersion"], "kind": kind, "metadata": meta})
    if is_run_of_cron_job(body):
        # Admission lets it through as it is, so its record may name anybody.
        return MarkedWorkload(resource, "", "", "", "", "its CronJob carries the flags; remove the label")
    record = record_in(body)
    by, at = str(record.get("by", "")), str(record.get("at", ""))
    try:
        carried = carried_flags(body)
    except Refused as refusal:
        return MarkedWorkload(resource, "", "", by, at, str(refusal))
    if carried is None:
        # The label was written by hand: admission would have removed it.
        return MarkedWorkload(resource, "", "", by, at, "it carries no flags; remove the label")
    return MarkedWorkload(resource, carried.text, carried.where, by, at)


def _content(workload: MarkedWorkload) -> object:
    resource = workload.resource
    return (
        resource.uid,
        resource.deleting,
        workload.text,
        workload.where,
        workload.by,
        workload.at,
        workload.refusal,
    )
