"""What runs for users, and what is changed of their workloads, with the installation's rights. Most of these
are given by namespace: a refusal says by which command.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import CONFIG_MAP, DEPLOYMENT, POD
from controller.api.objects.meta import ObjectKey
from controller.kube.adapters.granting import ServiceAccount, add_grant_command
from controller.kube.answers import require_object
from controller.kube.paths import path_of
from controller.kube.requests import JSON, MERGE
from controller.pods.workloads.flagd_objects import MANAGED_BY, OURS
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from controller.api.kinds import ResourceType
    from controller.kube.accounts import Accounts
    from controller.kube.client import Cluster
    from controller.pods.settings.flag_file import FlagFile
    from controller.pods.workloads.marked_pods import FilePod

log = logging.getLogger(__name__)

FILES_ROLE: Final = "flagstaff-flag-files"
_FLAGD_ROLE: Final = "flagstaff-flagd"
_UPGRADES_ROLE: Final = "flagstaff-upgrades"
_SCALE_MANAGER: Final = {"fieldManager": "flagstaff-proxy-scale"}


@dataclass(frozen=True, slots=True)
class ClusterWorkloads:
    """Implements `workloads.reconciler.Workloads`."""

    cluster: Cluster
    role: str = _FLAGD_ROLE
    """The ClusterRole that gives the right."""
    accounts: Accounts | None = None
    """Clients that act for objects; None: our own rights are used."""
    acting: ServiceAccount | None = None
    """Whose rights `cluster` has; None: ours."""

    def impersonate(self, namespace: str, account: str | None) -> ClusterWorkloads:
        """See Workloads. OpenFeature Operator's own definition writes `default` into each Flagd that names
        none. Raises Stalled for a bad name.
        """
        if self.accounts is None:
            return self
        name = account if account != "default" else None
        name = name or self.accounts.default
        acting = ServiceAccount(namespace, name) if name else None
        return replace(self, cluster=self.accounts.client(namespace, name), acting=acting)

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's body, or None. Raises Setback."""
        with add_grant_command(namespace, self.role, self.acting):
            return await self.cluster.get(api_version, kind, namespace, name)

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """See Applier."""
        with add_grant_command(manifest["metadata"]["namespace"], self.role, self.acting):
            return await self.cluster.apply(manifest, manager=manager)

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """See Applier."""
        with add_grant_command(namespace, self.role, self.acting):
            await self.cluster.delete(api_version, kind, namespace, name, uid=uid, version=version)

    async def serves(self, api_version: str, plural: str) -> bool:
        """Whether the cluster has the kind. Raises Failed."""
        return await self.cluster.requests.installs(api_version, plural)

    async def places(self, api_version: str, plural: str, namespaces: Sequence[str], name: str) -> set[str]:
        """The namespaces that hold an object of that name. Raises Failed."""
        objects = await self.cluster.everywhere(api_version, plural, namespaces, content=False, name=name)
        return {item["metadata"]["namespace"] for item in objects}


class ClusterFiles(ClusterWorkloads):
    """ConfigMaps of flags, and the pods that read them. Implements `workloads.flag_files.FileObjects` and
    `workloads.file_touches.TouchedPods`. Every method raises a Setback.
    """

    async def config_map(self, file: FlagFile) -> dict[str, Any] | None:
        """See FileObjects."""
        return await self.get("v1", CONFIG_MAP.kind, file.namespace, file.name)

    async def adopt(self, file: FlagFile) -> None:
        """See FileObjects."""
        key = ObjectKey(CONFIG_MAP.kind, file.namespace, file.name)
        with add_grant_command(file.namespace, self.role, None):
            await self.cluster.patch_metadata(CONFIG_MAP, key, labels={MANAGED_BY: OURS})

    async def touch(self, pod: FilePod, annotations: Mapping[str, str]) -> None:
        """See TouchedPods."""
        key = ObjectKey(POD.kind, pod.namespace, pod.name)
        try:
            with add_grant_command(pod.namespace, self.role, None):
                await self.cluster.patch_metadata(POD, key, annotations=annotations)
        except Failed as failed:
            if failed.reason == "AccessDenied":
                raise
            # The pod was deleted, or its kubelet updates later by itself.
            log.debug("%s", failed.message)


@dataclass(frozen=True, slots=True)
class ClusterRestarts:
    """Workloads that are restarted. Implements `upgrades.reconciler.Restarts`."""

    cluster: Cluster

    async def each(self, type_: ResourceType, namespace: str) -> AsyncIterator[dict[str, Any]]:
        """Yield all objects of a kind in a namespace, page by page. Raises Setback."""
        path = path_of(type_.api_version, type_.kind, namespace)
        with add_grant_command(namespace, _UPGRADES_ROLE, None):
            async for page in self.cluster.requests.pages(path, type_.api_version, type_.plural, JSON):
                for body in page.get("items") or ():
                    yield body

    async def annotate_template(
        self, type_: ResourceType, key: ObjectKey, version: str, annotations: Mapping[str, str]
    ) -> None:
        """Annotate the pods' template of a workload that is still at this version. Raises Setback."""
        template = {"metadata": {"annotations": dict(annotations)}}
        body = {"metadata": {"resourceVersion": version}, "spec": {"template": template}}
        with add_grant_command(key.namespace, _UPGRADES_ROLE, None):
            await self.cluster.merge(type_, key, body, "restart")


@dataclass(frozen=True, slots=True)
class ClusterScale:
    """Scales a Deployment by its `scale` subresource, which can change nothing else. Implements
    `workloads.proxy_scale.Scale`.
    """

    cluster: Cluster

    async def replicas(self, namespace: str, name: str) -> int | None:
        """See Scale."""
        answer = await self.cluster.requests.ask("GET", _scale_path(namespace, name))
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return int((require_object(answer, DEPLOYMENT.kind, name).get("spec") or {}).get("replicas") or 0)

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """See Scale."""
        path, body = _scale_path(namespace, name), {"spec": {"replicas": replicas}}
        self.cluster.begin_write("scale", DEPLOYMENT.kind)
        answer = await self.cluster.requests.ask("PATCH", path, _SCALE_MANAGER, body, MERGE)
        require_object(answer, DEPLOYMENT.kind, name)


def _scale_path(namespace: str, name: str) -> str:
    return f"{path_of(DEPLOYMENT.api_version, DEPLOYMENT.kind, namespace, name)}/scale"
