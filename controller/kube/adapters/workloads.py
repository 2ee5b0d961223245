"""Objects that run for users. The right to them is given by namespace: a refusal says by which command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.kube.adapters.granting import granting
from controller.kube.discovery import is_installed
from controller.kube.requests import Requests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.kube.client import Cluster

ROLE: Final = "flagstaff-flagd"


@dataclass(frozen=True, slots=True)
class ClusterWorkloads:
    """Implements `workloads.reconciler.Workloads` with the installation's rights."""

    cluster: Cluster
    role: str = ROLE
    """The ClusterRole that gives the right."""

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's body, or None. Raises Setback."""
        with granting(namespace, self.role, None):
            return await self.cluster.get(api_version, kind, namespace, name)

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """As Applier has it."""
        with granting(manifest["metadata"]["namespace"], self.role, None):
            return await self.cluster.apply(manifest, manager=manager)

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        """As Applier has it."""
        with granting(namespace, self.role, None):
            await self.cluster.delete(api_version, kind, namespace, name, uid=uid)

    async def serves(self, api_version: str, plural: str) -> bool:
        """Whether the cluster has the kind. Raises Failed."""
        return await is_installed(Requests(self.cluster.api), api_version, plural)

    async def places(self, api_version: str, plural: str, namespaces: Sequence[str], name: str) -> set[str]:
        """The namespaces that hold an object of that name. Raises Failed."""
        found = await self.cluster.everywhere(api_version, plural, namespaces, content=False, name=name)
        return {each["metadata"]["namespace"] for each in found}
