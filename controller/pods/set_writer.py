"""Keeps a FeatureFlagConfiguration for each workload that carries flags."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.featureflagconfiguration import KIND
from controller.api.kinds import FLAG_CARRIERS
from controller.api.meta import ObjectKey, Resource, about
from controller.delivery.claims import KINDS as SERVED
from controller.pods.carried_flags import DIRECT_SET_MARK, MOST_APPLIED, read_flags
from controller.pods.installation import DIRECT_SET, PodRefused
from controller.pods.marked_workloads import (
    MANAGER,
    MarkedWorkload,
    MarkedWorkloads,
    is_set_of,
    is_written,
    name_refusal,
    set_manifest,
)
from controller.runtime.cache import Applier, Cache, Change, at_version
from controller.runtime.event import EventSink, Occurrence, event_of
from controller.runtime.setbacks import Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from controller.runtime.queue import KeyedQueue

log = logging.getLogger(__name__)

ROLE: Final = "flagstaff-direct-sets"
"""The ClusterRole that gives the right to read workloads."""
RETRY_SECONDS: Final = 60.0
"""Seconds from one try to the next, at most."""
_VERSIONS: Final = {type_.kind: type_.api_version for type_ in FLAG_CARRIERS}


class Workloads(Protocol):
    """Port to the workloads of the cluster."""

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """A workload's body, or None. Raises a Setback."""


@dataclass(slots=True)
class DirectSets:
    """Writes and deletes the FeatureFlagConfigurations of workloads."""

    objects: Cache
    cluster: Workloads
    client: Callable[[str], Applier]
    """Returns the writer of the sets of a namespace, with the rights that are for it."""
    applied: Callable[[dict[str, Any]], None]
    """Receives each object that was written."""
    sinks: Iterable[EventSink]
    now: Callable[[], datetime]
    queue: KeyedQueue[ObjectKey]
    """A queue of workloads."""
    workloads: MarkedWorkloads
    _failed: dict[ObjectKey, str] = field(default_factory=dict)
    """The failure that was reported last of each workload."""

    def on_change(self, change: Change) -> None:
        """Handle a change of any object: of a set, or of what has or had its name."""
        for resource in (change.before, change.after):
            if resource is not None and resource.key.kind in SERVED:
                for key in self.workloads.keys_named(resource.namespace, resource.name):
                    self.queue.put(key)

    async def run(self) -> None:
        """Keep the sets until cancelled."""
        await self.workloads.wait_listed()
        for key in self.workloads.all():
            self.queue.put(key)
        # Sets whose workloads lost their flags before this process started.
        for resource in self.objects.of_kind(KIND):
            kind = resource.labels.get(DIRECT_SET)
            if kind in _VERSIONS:
                self.queue.put(ObjectKey(kind, resource.namespace, resource.name))
        await self.queue.work(self.keep, self._report_failure, longest=RETRY_SECONDS)

    async def keep(self, key: ObjectKey) -> None:
        """Write the set of one workload, or delete it if the workload carries no flags. Raises a Setback."""
        workload = self.workloads.get(key)
        if workload is None:
            await self._delete(key)
            self.queue.forget(key)
        elif not workload.resource.deleting:
            await self._write(workload)
        self._failed.pop(key, None)

    async def _write(self, workload: MarkedWorkload) -> None:
        key = workload.key
        if workload.refusal:
            raise Stalled("InvalidFlags", workload.refusal)
        if refusal := name_refusal(self.objects, key):
            raise Stalled("NameTaken", f"{workload.where}: {refusal}")
        try:
            flags = await asyncio.to_thread(read_flags, workload.text, workload.where, MOST_APPLIED)
        except PodRefused as refusal:
            raise Stalled("InvalidFlags", str(refusal)) from None
        manifest = set_manifest(workload, flags.flag_set)
        current = self.objects.get(ObjectKey(KIND, key.namespace, key.name))
        if is_written(current, manifest):
            return
        version = "" if current is None else current.resource_version
        body, _ = await self.client(key.namespace).apply(at_version(manifest, version), manager=MANAGER)
        self.applied(body)
        written = Resource.of(body)
        if current is not None and current.spec == written.spec:
            return
        count = len(flags.flag_set.flags)
        by = f", applied by {workload.by}" if workload.by else ""
        what = f"{KIND} {key.name} has {count} flag{'' if count == 1 else 's'} of the annotation{by}"
        self._report(workload.resource, Occurrence("FlagsWritten", what, version=written.resource_version))

    async def _delete(self, key: ObjectKey) -> None:
        """Delete the set of a workload that is there without flags. That of a deleted workload is left to
        Kubernetes, whose user may want to keep it (`--cascade=orphan`).
        """
        current = self.objects.get(ObjectKey(KIND, key.namespace, key.name))
        if current is None or current.deleting or not is_set_of(current, key):
            return
        body = await self.cluster.get(_VERSIONS[key.kind], key.kind, key.namespace, key.name)
        if body is None:
            return
        meta = body["metadata"]
        if (meta.get("labels") or {}).get(DIRECT_SET) == DIRECT_SET_MARK:
            # It was marked again meanwhile, which wakes us.
            return
        resource = Resource.of({**body, "kind": key.kind, "apiVersion": _VERSIONS[key.kind]})
        place = current.api_version, KIND, key.namespace, key.name
        version = current.resource_version
        try:
            await self.client(key.namespace).delete(*place, uid=current.uid, version=version)
        except Setback as setback:
            self._report_failure_of(resource, "FlagsNotRemoved", setback)
            raise
        what = f"{KIND} {key.name} is deleted, as its annotation was; running evaluators keep its flags"
        self._report(resource, Occurrence("FlagsRemoved", what, version=version))

    def _report_failure(self, key: ObjectKey, setback: Setback) -> None:
        log.warning("the flags of a workload: %s", setback.message, extra=about(key))
        if (workload := self.workloads.get(key)) is not None:
            self._report_failure_of(workload.resource, "FlagsNotWritten", setback)

    def _report_failure_of(self, resource: Resource, reason: str, setback: Setback) -> None:
        if isinstance(setback, Waiting) or self._failed.get(resource.key) == setback.message:
            return
        self._failed[resource.key] = setback.message
        self._report(resource, Occurrence(reason, setback.message, warning=True))

    def _report(self, resource: Resource, occurrence: Occurrence) -> None:
        # A workload's own version changes with the state of its pods.
        event = event_of(replace(resource, resource_version=""), occurrence, self.now())
        for sink in self.sinks:
            sink.accept(event)
