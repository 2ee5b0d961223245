"""Workloads that are restarted, and what is asked of before. The right to it is given by namespace: a refusal
says by which command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.kube.adapters.granting import granting
from controller.kube.paths import path_of
from controller.kube.requests import JSON, Requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.kinds import ResourceType
    from controller.api.meta import ObjectKey
    from controller.kube.client import Cluster

ROLE: Final = "flagstaff-upgrades"


@dataclass(frozen=True, slots=True)
class ClusterRestarts:
    """Implements `upgrades.reconciler.Restarts` with the installation's rights."""

    cluster: Cluster

    async def each(self, type_: ResourceType, namespace: str) -> AsyncIterator[dict[str, Any]]:
        """All objects of a kind in a namespace, page by page. Raises Setback."""
        path = path_of(type_.api_version, type_.kind, namespace)
        with granting(namespace, ROLE, None):
            async for page in Requests(self.cluster.api).pages(path, type_.api_version, type_.plural, JSON):
                for body in page.get("items") or ():
                    yield body

    async def annotate_template(
        self, type_: ResourceType, key: ObjectKey, version: str, annotations: Mapping[str, str]
    ) -> None:
        """Annotate the pods' template of a workload that is still at this version. Raises Setback."""
        template = {"metadata": {"annotations": dict(annotations)}}
        body = {"metadata": {"resourceVersion": version}, "spec": {"template": template}}
        with granting(key.namespace, ROLE, None):
            await self.cluster.merge(type_, key, body, "restart")
