"""What the reconcilers of local mode read sources and artifacts by."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.runtime.reconciling.setbacks import Waiting
from controller.sources.backend import BackendFactory, FetchRequest, SourceBackend

if TYPE_CHECKING:
    from controller.api.objects.artifact_status import ArtifactStatus
    from controller.artifacts.storages import Storages


@dataclass(frozen=True, slots=True)
class OneSource(BackendFactory[object]):
    """Opens the source of the command line; it reads no spec."""

    provider: SourceBackend

    async def open(self, spec: object, request: FetchRequest) -> SourceBackend:
        """The source."""
        del spec, request
        return self.provider

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class StoredArtifacts:
    """Reads artifacts from the store beside us. Implements `Artifacts`."""

    storages: Storages

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        """The archive. Raises Waiting where it is gone: the source's next reconcile makes a new one."""
        archive = await asyncio.to_thread(self.storages.read, artifact.path)
        if archive is None:
            raise Waiting("ArtifactFailed", f"the artifact of {artifact.revision} in {namespace} is gone")
        return archive
