"""What `flagstaff migrate` finds in a cluster, and what its API server says to each change as a dry run."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from controller.api import kinds
from controller.api.kind import ResourceType
from controller.kube.answers import require_good, root_of
from controller.kube.client import Cluster
from controller.kube.requests import APPLY, JSON, MERGE
from controller.migration.migrated_objects import lacks_evaluator
from controller.migration.steps import (
    BINDING,
    CRDS,
    DEPLOYMENT,
    MUTATING,
    NAMESPACE,
    POLICY,
    PROXY_SERVICE,
    VALIDATING,
    Installed,
    ObjectChange,
)
from controller.pods.installation import TEMPLATES
from controller.runtime.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


_SEEN: Final = (
    kinds.FEATURE_FLAG_SOURCE,
    kinds.FEATURE_FLAG,
    kinds.FEATURE_FLAG_CONFIGURATION,
    kinds.IN_PROCESS_CONFIGURATION,
    kinds.FLAGD,
    kinds.FLAG_SET,
    kinds.FLAG_GRANT,
    *kinds.RESTARTED,
    ResourceType("batch/v1", "CronJob", "cronjobs"),
    ResourceType("batch/v1", "Job", "jobs"),
    kinds.POD,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """The objects of a cluster that matter to a migration."""

    objects: tuple[dict[str, Any], ...]
    """OpenFeature's kinds, flag sets, grants, and workloads without an owner."""
    installed: Installed


@contextlib.asynccontextmanager
async def open_cluster(kubeconfig: str | None, context: str | None) -> AsyncIterator[Cluster]:
    """Open a client for the block. Raises ConfigException."""
    cluster = await Cluster.connect(kubeconfig, context=context)
    try:
        yield cluster
    finally:
        await cluster.close()


async def read_cluster(cluster: Cluster, namespaces: Sequence[str]) -> Seen:
    """Everything that matters, in `namespaces` or in all there are. Raises Failed."""
    objects: list[dict[str, Any]] = []
    for kind in _SEEN:
        bodies = await cluster.everywhere(kind.api_version, kind.plural, namespaces)
        objects += [{"apiVersion": kind.api_version, "kind": kind.kind, **body} for body in bodies]
    pods = tuple(
        f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
        for body in objects
        if body["kind"] == kinds.POD.kind and lacks_evaluator(body) and _runs(body)
    )
    # The pods of a workload follow its template.
    mine = [
        body
        for body in objects
        if body["kind"] not in TEMPLATES or not body["metadata"].get("ownerReferences")
    ]
    return Seen(tuple(mine), await _read_installed(cluster, pods))


async def _read_installed(cluster: Cluster, pods: tuple[str, ...]) -> Installed:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    hooks = "/apis/admissionregistration.k8s.io/v1"
    mutating = await _get(cluster, f"{hooks}/mutatingwebhookconfigurations/{MUTATING}")
    validating = await _get(cluster, f"{hooks}/validatingwebhookconfigurations/{VALIDATING}")
    service = await _get(cluster, f"/api/v1/namespaces/{NAMESPACE}/services/{PROXY_SERVICE}")
    operator = await _get(cluster, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}")
    binding = await _get(cluster, f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{BINDING}")
    return Installed(
        unkept=tuple(
            [name for name in CRDS if _is_removed_by_helm(await _get(cluster, f"{definitions}/{name}"))]
        ),
        operator=operator is not None and operator["spec"].get("replicas") != 0,
        webhooks=tuple(
            name for name, hook in ((MUTATING, mutating), (VALIDATING, validating)) if hook is not None
        ),
        proxy_service=service is not None and service["spec"].get("type") != "ExternalName",
        binding=binding is not None,
        unserved=pods,
    )


async def _get(cluster: Cluster, path: str) -> dict[str, Any] | None:
    answer = await cluster.request("GET", path)
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    require_good(answer, path, "")
    return answer.body


def _is_removed_by_helm(definition: Mapping[str, Any] | None) -> bool:
    """Whether Helm installed it, and would remove it."""
    annotations = {} if definition is None else definition["metadata"].get("annotations") or {}
    return "meta.helm.sh/release-name" in annotations and annotations.get(POLICY) != "keep"


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}


async def dry_run_change(cluster: Cluster, change: ObjectChange) -> str:
    """Return the API server's refusal of a change, tried as a dry run; empty where it would accept it."""
    query = {"dryRun": "All", "fieldManager": "flagstaff-migrate"}
    if change.method == "DELETE":
        query = {"dryRun": "All"}
    answer = await cluster.requests.ask(
        change.method, change.path, query, change.body, JSON if change.method == "DELETE" else MERGE
    )
    return "" if answer.status < HTTPStatus.BAD_REQUEST else str(answer.body.get("message", answer.status))


async def dry_run_apply(cluster: Cluster, manifest: Mapping[str, Any]) -> str:
    """What a dry apply comes to: `created`, `changed`, `unchanged` or `refused: …`. Raises Failed."""
    path = await _path(cluster, manifest)
    before = await cluster.requests.ask("GET", path)
    query = {"dryRun": "All", "fieldManager": "flagstaff-migrate", "force": "true"}
    answer = await cluster.requests.ask("PATCH", path, query, manifest, APPLY)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        return f"refused: {answer.body.get('message', answer.status)}"
    if before.status == HTTPStatus.NOT_FOUND:
        return "created"
    return "unchanged" if _plain(before.body) == _plain(answer.body) else "changed"


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what the API server itself writes."""
    meta = {
        name: value
        for name, value in body["metadata"].items()
        if name not in {"managedFields", "resourceVersion", "generation"}
    }
    return {**body, "metadata": meta, "status": None}


async def _path(cluster: Cluster, manifest: Mapping[str, Any]) -> str:
    """Where an object of any kind is, by the API server's own list."""
    version, kind, meta = str(manifest["apiVersion"]), manifest["kind"], manifest["metadata"]
    root = root_of(version)
    answer = await cluster.request("GET", root)
    for resource in answer.body.get("resources") or ():
        if resource.get("kind") == kind and "/" not in resource["name"]:
            place = f"/namespaces/{meta.get('namespace', 'default')}" if resource["namespaced"] else ""
            return f"{root}{place}/{resource['name']}/{meta['name']}"
    raise Failed("NotInstalled", f"{version} {kind}: the cluster has no such kind")
