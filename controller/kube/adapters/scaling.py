"""Scales a Deployment by its `scale` subresource, which can change nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from controller.api.kinds import DEPLOYMENT
from controller.kube.answers import expected
from controller.kube.paths import path_of
from controller.kube.requests import Requests

if TYPE_CHECKING:
    from controller.kube.client import Cluster

_MERGE: Final = "application/merge-patch+json"
_MANAGER: Final = {"fieldManager": "flagstaff-proxy-scale"}


@dataclass(frozen=True, slots=True)
class ClusterScale:
    """Implements `workloads.proxy_scale.Scale`."""

    cluster: Cluster

    async def replicas(self, namespace: str, name: str) -> int | None:
        """As Scale has it."""
        answer = await Requests(self.cluster.api).ask("GET", _path(namespace, name))
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return int((expected(answer, DEPLOYMENT.kind, name).get("spec") or {}).get("replicas") or 0)

    async def scale(self, namespace: str, name: str, replicas: int) -> None:
        """As Scale has it."""
        body = {"spec": {"replicas": replicas}}
        answer = await Requests(self.cluster.api).ask("PATCH", _path(namespace, name), _MANAGER, body, _MERGE)
        expected(answer, DEPLOYMENT.kind, name)


def _path(namespace: str, name: str) -> str:
    return f"{path_of(DEPLOYMENT.api_version, DEPLOYMENT.kind, namespace, name)}/scale"
