"""What the worlds of stages are made of: a cluster in memory that records writes, and a turn of the loop."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from controller.api.flagset import LABEL
from controller.api.meta import ObjectKey, Resource
from controller.runtime.cache import Cache, MemoryCluster, manifest_of
from controller.runtime.loop import reconcile_as_wanted
from controller.runtime.result import Result, Settled, settle
from controller.runtime.setbacks import Passing, Setback
from controller.runtime.watches import indexes_of
from tests.statuses import read_condition
from tests.worlds.objects import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.runtime.event import Event
    from controller.runtime.loop import Reconciler
    from controller.runtime.watches import Reconciles


class Sink:
    """Keeps Events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def accept(self, event: Event) -> None:
        self.events.append(event)

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    def take(self) -> list[tuple[str, str]]:
        """(reason, message) of each since this was asked last."""
        events, self.events = self.events, []
        return [(event.reason, event.message) for event in events]


class RecordingCluster(MemoryCluster):
    """Keeps objects as the API server would: what changes one is a new version, what changes its spec a new
    generation. Records writes, and refuses those that a test names.
    """

    def __init__(self, stages: Sequence[Reconciles] = (), namespace: str = NAMESPACE) -> None:
        super().__init__(Cache(indexes_of(stages)))
        self.namespace = namespace
        self.writes: list[str] = []
        """`apply Kind/name`, `status Kind/name` and `delete Kind/name`, in order."""
        self.managers: set[str] = set()
        self.accounts: list[str | None] = []
        """The service accounts that were to write."""
        self.editors: dict[str, str] = {}
        """Who changed `Kind/name` by hand since it was applied."""
        self.failing: dict[str, Setback] = {}
        """By what `writes` would have."""
        self.prunes: frozenset[str] = frozenset()
        """Fields below spec that this API server does not know."""

    def impersonate(self, namespace: str, account: str | None) -> Self:
        assert namespace == self.namespace
        self.accounts.append(account)
        return self

    def the(self, kind: str, name: str) -> Resource:
        found = self.objects.get(ObjectKey(kind, self.namespace, name))
        assert found is not None, f"{kind} {name} is not there"
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(found.name for found in self.objects.of_kind(kind))

    def put(self, body: Mapping[str, Any]) -> Resource:
        """Whatever anybody writes, also a status."""
        given = deepcopy(dict(body))
        given["metadata"] = {"namespace": self.namespace, **given["metadata"]}
        given["metadata"].pop("uid", None)
        written = super().put(given)
        return self.set_status(written, given["status"]) if "status" in given else written

    def set_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource:
        """Another's write of a status, which is not recorded."""
        known = self.the(resource.key.kind, resource.name)
        written = replace(known, status=deepcopy(dict(status)), resource_version=self._next())
        self.objects.learn(written)
        return written

    def edit(self, kind: str, name: str, who: str = "kubectl-edit", **spec: Any) -> None:
        """A hand's change."""
        before = self.the(kind, name)
        self.put(manifest_of(before) | {"spec": {**before.spec, **spec}})
        self.editors[f"{kind}/{name}"] = who

    def remove(self, kind: str, name: str) -> None:
        self.objects.forget(ObjectKey(kind, self.namespace, name))

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._write(f"apply {kind}/{name}")
        self.managers.add(manager)
        body, editor = deepcopy(dict(manifest)), self.editors.pop(f"{kind}/{name}", "")
        known = self.objects.get(ObjectKey(kind, self.namespace, name))
        version = body["metadata"].pop("resourceVersion", None)
        if version is not None and (known is None or version != known.resource_version):
            raise Passing("ChangedMeanwhile", f"{kind} {name} changed", delay=0.1)
        body["spec"] = {key: part for key, part in body["spec"].items() if key not in self.prunes}
        if known is not None and manifest_of(known) == manifest_of(Resource.of(body)):
            return body_of(known), editor
        return (await super().apply(body, manager=manager))[0], editor

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        self._write(f"status {resource.key.kind}/{resource.name}")
        return await super().write_status(resource, status)

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        self._write(f"delete {kind}/{name}")
        await super().delete(api_version, kind, namespace, name, uid=uid, version=version)

    def take_writes(self) -> list[str]:
        """The writes since this was asked last."""
        writes, self.writes = self.writes, []
        return writes

    def _write(self, what: str) -> None:
        if what in self.failing:
            raise self.failing[what]
        self.writes.append(what)


def body_of(resource: Resource) -> dict[str, Any]:
    """An object as a client reads it."""
    body = deepcopy(manifest_of(resource))
    body["metadata"] |= {
        "uid": resource.uid,
        "generation": resource.generation,
        "resourceVersion": resource.resource_version,
    }
    return {**body, "status": deepcopy(dict(resource.status))}


@dataclass
class Turn:
    """What one turn of the loop came to."""

    settled: Settled
    status_written: bool
    result: str
    writes: list[str] = field(default_factory=list)

    @property
    def status(self) -> dict[str, Any]:
        return self.settled.status

    @property
    def ready(self) -> tuple[str, str, str]:
        """(status, reason, message)."""
        return ready(self.settled)

    @property
    def reason(self) -> str:
        return self.ready[1]

    @property
    def message(self) -> str:
        return self.ready[2]

    @property
    def said(self) -> list[str]:
        """`Reason: message` of each Event."""
        return [f"{event.reason}: {event.message}" for event in self.settled.events]


def ready(settled: Settled) -> tuple[str, str, str]:
    """(status, reason, message)."""
    return read_condition(settled.status)


async def take_turn(reconciler: Reconciler, resource: Resource, now: datetime) -> Turn:
    """Reconcile as the loop does; the status is not written."""
    try:
        result = await reconcile_as_wanted(reconciler, resource, now)
    except Setback as setback:
        result = Result.of(setback)
    settled = settle(resource, result, now)
    return Turn(settled, settled.status != resource.status, type(result.outcome).__name__)


def written_by(flag_set: str) -> dict[str, Any]:
    """Metadata of an object that a FlagSet has written."""
    owner = {
        "apiVersion": "flagstaff.dev/v1beta1",
        "kind": "FlagSet",
        "name": flag_set,
        "uid": f"uid-{flag_set}",
    }
    return {"labels": {LABEL: flag_set}, "ownerReferences": [owner]}
