"""A FlagSource's artifact as Flux's ExternalArtifact, for Flux's own tools to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.flagsource import KIND
from controller.api.kinds import FLUX
from controller.api.objects.artifact_status import ArtifactStatus, SourceStatus
from controller.api.objects.conditions import READY, TRUE, Condition, condition_json
from controller.api.objects.meta import API_VERSION, ObjectKey, Resource, timestamp
from controller.runtime.objects.applier import Applier, at_version
from controller.runtime.reconciling.setbacks import Failed, Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.runtime.objects.cache import Cache

EXPORTED: Final = "ExternalArtifact"
LABEL: Final = "flagstaff.dev/flagsource"
_MANAGER: Final = "flagstaff-export"


class ExportWriter(Applier, Protocol):
    """Writes objects, and the status of one."""

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's, and return it as it is now; None if it is gone. Raises Setback."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Keeps an ExternalArtifact of the FlagSource's name beside it, written only where it differs."""

    objects: Cache
    writer: Callable[[str, str | None], ExportWriter]
    """Returns the writer with the rights of a namespace's service account."""

    async def publish(
        self, source: Resource, artifact: ArtifactStatus, account: str | None, now: datetime
    ) -> None:
        """Write `artifact` to its status. Raises Setback."""
        if source.deleting:
            return
        exported = self._find_exported(source)
        if exported is not None and not exported.is_owned_by(source):
            raise Stalled(
                "OwnershipConflict",
                f"{EXPORTED} {source.name} belongs to another; remove it, or rename the FlagSource",
            )
        manifest = _manifest(source)
        writer = self.writer(source.namespace, account)
        if exported is None or exported.spec != manifest["spec"]:
            try:
                decided = at_version(manifest, "" if exported is None else exported.resource_version)
                body, _ = await writer.apply(decided, manager=_MANAGER)
            except Failed as failed:
                if failed.reason != "ApiServerFailed" or exported is not None:
                    raise
                message = f"{failed.message} (spec.export needs the kind {EXPORTED}, of Flux 2.7 or later)"
                raise Failed(failed.reason, message) from failed
            exported = Resource.of(body)
            self.objects.learn(exported)
        status = SourceStatus.of(exported)
        if status.artifact == artifact and status.conditions:
            return
        after = await writer.write_status(exported, _status(exported, artifact, now))
        if after is None:
            raise Failed("ApiServerFailed", f"{EXPORTED} {source.name} was removed meanwhile")
        self.objects.learn(after)

    async def remove(self, source: Resource, account: str | None) -> None:
        """Remove the ExternalArtifact if this source wrote it. Raises Setback."""
        exported = self._find_exported(source)
        if exported is None or exported.deleting or not exported.is_owned_by(source):
            return
        writer = self.writer(source.namespace, account)
        await writer.delete(
            FLUX, EXPORTED, source.namespace, source.name, uid=exported.uid, version=exported.resource_version
        )

    def _find_exported(self, source: Resource) -> Resource | None:
        return self.objects.get(ObjectKey(EXPORTED, source.namespace, source.name))


def _manifest(source: Resource) -> dict[str, Any]:
    named = {"apiVersion": API_VERSION, "kind": KIND, "name": source.name}
    return {
        "apiVersion": FLUX,
        "kind": EXPORTED,
        "metadata": {
            "name": source.name,
            "namespace": source.namespace,
            "labels": {LABEL: source.name},
            "ownerReferences": [source.owner_reference | {"controller": True}],
        },
        "spec": {"sourceRef": {**named, "namespace": source.namespace}},
    }


def _status(exported: Resource, artifact: ArtifactStatus, now: datetime) -> dict[str, Any]:
    """Return a status that is ready: the FlagSource reports a later artifact that cannot be fetched."""
    ready = Condition(READY, TRUE, "Succeeded", f"stored artifact for revision {artifact.revision}")
    before, moment = SourceStatus.of(exported).condition(READY), timestamp(now)
    conditions = [condition_json(ready, before, generation=exported.generation, now=moment)]
    return {**exported.status, **SourceStatus(artifact=artifact).fields(), "conditions": conditions}
