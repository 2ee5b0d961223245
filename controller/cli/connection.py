"""Which cluster and namespace a verb is about, and the connection to it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from controller.api.kinds import NAMESPACE
from controller.api.meta import Resource
from controller.cli.printing import PROBLEM, Exit, did_you_mean
from controller.kube.answers import path_of, require_object
from controller.kube.client import Cluster
from controller.kube.requests import APPLY, MERGE
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from controller.api.kind import ResourceType
    from controller.cli.clusters import ClusterScope


MANAGER = "flagstaff-cli"
"""The field manager of what verbs write."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A client, and the namespace of the verb."""

    cluster: Cluster
    namespace: str
    """Empty: all."""

    async def resources(self, *types: ResourceType) -> list[Resource]:
        """All objects of these kinds, by kind in their order, then by namespace and name. Raises Failed."""
        return [Resource.of(body) for type_ in types for body in await self.bodies(type_)]

    async def bodies(self, type_: ResourceType, labels: str = "") -> list[dict[str, Any]]:
        """The bodies of all objects of a kind with these `labels`, by namespace and name. Raises Failed."""
        namespaces = [self.namespace] if self.namespace else []
        bodies = await self.cluster.everywhere(type_.api_version, type_.plural, namespaces, labels=labels)
        whole = [{"apiVersion": type_.api_version, **body, "kind": type_.kind} for body in bodies]
        return sorted(whole, key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))

    async def get(self, type_: ResourceType, name: str) -> Resource:
        """The object of this name. Raises Exit with a name that is spelled alike, Setback."""
        return Resource.of(await self.body(type_, name))

    async def body(self, type_: ResourceType, name: str) -> dict[str, Any]:
        """The body of the object of this name. Raises Exit with a name that is spelled alike, Setback."""
        body = await self.cluster.get(type_.api_version, type_.kind, self.namespace, name)
        if body is None:
            hint = await self.hint(name, type_)
            raise Exit(f"there is no {type_.kind} {name} in namespace {self.namespace}{hint}", PROBLEM)
        return body

    async def hint(self, name: str, *types: ResourceType) -> str:
        """Where else an object of this name is, as far as the user may look there; or else a name that is
        spelled alike. Raises Failed.
        """
        places: set[str] = set()
        with contextlib.suppress(Setback):
            for type_ in types:
                bodies = await self.cluster.everywhere(
                    type_.api_version, type_.plural, (), content=False, name=name
                )
                # A server that knows no field selectors sends others, too.
                places |= {
                    body["metadata"]["namespace"] for body in bodies if body["metadata"]["name"] == name
                }
        if places:
            return f"; there is one in namespace {', '.join(sorted(places)[:3])}: see -n"
        return did_you_mean(name, sorted({other.name for other in await self.resources(*types)}))

    def missing_object(self, kind: str, name: str, names: Iterable[str]) -> Exit:
        """What to end with where there is no such object, but those called `names`."""
        return Exit(
            f"there is no {kind} {name} in namespace {self.namespace}{did_you_mean(name, names)}", PROBLEM
        )

    async def find(self, type_: ResourceType, namespace: str, name: str) -> Resource | None:
        """An object in any namespace, or None. Raises Setback."""
        body = await self.cluster.get(type_.api_version, type_.kind, namespace, name)
        return None if body is None else Resource.of(body)

    async def merge(self, type_: ResourceType, name: str, patch: Mapping[str, Any]) -> None:
        """Change an object as a merge patch (RFC 7386) says. Raises Setback."""
        path = path_of(type_.api_version, type_.kind, self.namespace, name)
        query = {"fieldManager": MANAGER}
        require_object(await self.cluster.requests.ask("PATCH", path, query, patch, MERGE), type_.kind, name)

    async def apply(self, path: str, manifest: Mapping[str, Any], *, force: bool = False) -> None:
        """Server-side apply of any object. Raises Setback."""
        query = {"fieldManager": MANAGER, **({"force": "true"} if force else {})}
        answer = await self.cluster.requests.ask("PATCH", path, query, manifest, APPLY)
        require_object(answer, str(manifest["kind"]), str(manifest["metadata"]["name"]))


async def has_nodes(cluster: Cluster) -> bool:
    """Whether the cluster can run pods, as far as the user may read nodes. Raises Failed."""
    answer = await cluster.requests.ask("GET", "/api/v1/nodes", {"limit": "1"})
    return answer.status != HTTPStatus.OK or bool(answer.body.get("items"))


@contextlib.asynccontextmanager
async def open_connection(scope: ClusterScope) -> AsyncIterator[ClusterConnection]:
    """A connection for as long as the block lasts. Raises ConfigException; Exit for a namespace that is not
    there.
    """
    cluster = await Cluster.connect(scope.kubeconfig, context=scope.context)
    try:
        namespace = "" if scope.everywhere else scope.namespace or cluster.namespace
        await _require_namespace(cluster, namespace)
        yield ClusterConnection(cluster, namespace)
    finally:
        await cluster.close()


async def _require_namespace(cluster: Cluster, namespace: str) -> None:
    """Raise Exit for a namespace that does not exist, as far as the user may read namespaces."""
    names: list[str] | None = None
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}"
    # A cluster that does not answer is reported by what is asked next.
    with contextlib.suppress(Setback):
        if namespace and (await cluster.request("GET", path)).status == HTTPStatus.NOT_FOUND:
            names = []
            bodies = await cluster.everywhere("v1", NAMESPACE.plural, (), content=False)
            names = [body["metadata"]["name"] for body in bodies]
    if names is not None:
        hint = did_you_mean(namespace, names) or "; kubectl get namespaces lists them"
        raise Exit(f"there is no namespace {namespace!r}{hint}", PROBLEM)
