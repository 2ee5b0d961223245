"""ConfigMaps of flags, and the pods that read them, with the installation's rights."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import CONFIG_MAP, POD
from controller.api.meta import ObjectKey
from controller.kube.adapters.granting import granting
from controller.runtime.reconciling.setbacks import Failed
from controller.workloads.manifests import MANAGED_BY, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.injection.reading.files import FlagFile
    from controller.kube.client import Cluster
    from controller.workloads.file_pods import FilePod

log = logging.getLogger(__name__)

ROLE: Final = "flagstaff-flag-files"


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """Implements `workloads.flag_files.FileObjects` and `workloads.file_touches.TouchedPods`. Every method
    raises a Setback, which says how to grant a right that lacks.
    """

    cluster: Cluster

    async def config_map(self, file: FlagFile) -> dict[str, Any] | None:
        """As FileObjects has it."""
        with granting(file.namespace, ROLE, None):
            return await self.cluster.get("v1", CONFIG_MAP.kind, file.namespace, file.name)

    async def adopt(self, file: FlagFile) -> None:
        """As FileObjects has it."""
        key = ObjectKey(CONFIG_MAP.kind, file.namespace, file.name)
        with granting(file.namespace, ROLE, None):
            await self.cluster.patch_metadata(CONFIG_MAP, key, labels={MANAGED_BY: OURS})

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """As FileObjects has it."""
        with granting(manifest["metadata"]["namespace"], ROLE, None):
            return await self.cluster.apply(manifest, manager=manager)

    async def touch(self, pod: FilePod, annotations: Mapping[str, str]) -> None:
        """As TouchedPods has it."""
        key = ObjectKey(POD.kind, pod.namespace, pod.name)
        try:
            with granting(pod.namespace, ROLE, None):
                await self.cluster.patch_metadata(POD, key, annotations=annotations)
        except Failed as failed:
            if failed.reason == "AccessDenied":
                raise
            # It is gone, or its kubelet looks later by itself.
            log.debug("%s", failed.message)
