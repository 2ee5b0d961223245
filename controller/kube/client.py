"""The Kubernetes client of the loop and the stages, on the official package's asynchronous client."""

from __future__ import annotations

import base64
import binascii
import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

from controller.api.meta import NOTHING, ObjectKey, Resource
from controller.kube.answers import (
    ApiResponse,
    ServiceAccount,
    add_grant_command,
    causes,
    conflict_message,
    editor,
    path_of,
    paths_of_all,
    require_good,
    require_object,
    require_unchanged,
    service_account_user,
)
from controller.kube.kubeconfig import DEFAULT_TIMING, ApiClient, CredentialTiming, load_configuration
from controller.kube.requests import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE,
    METADATA,
    METADATA_LIST,
    ApiTransport,
    ClientTransport,
    Requests,
    decode_values,
    status_patch,
)
from controller.runtime.secret_texts import ALLOWED_HOSTS, Binding, SecretContent, hosts_of
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kubernetes.aio import client

    from controller.api.kind import ResourceType
    from controller.runtime.process import Role


class ClusterReader:
    """The reading half of `Cluster`; every error is a setback."""

    def __init__(self, transport: ApiTransport, acting: ServiceAccount | None = None) -> None:
        """`acting`: the service account whose rights are used; None: our own. Raises Stalled for what is no
        account's name.
        """
        headers = {} if acting is None else {"Impersonate-User": acting.user}
        self.requests = Requests(transport, headers=headers)
        self._acting = acting

    async def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object's body, or None."""
        answer = await self.requests.ask("GET", path_of(api_version, kind, namespace, name))
        return None if answer.status == HTTPStatus.NOT_FOUND else require_object(answer, kind, name)

    async def uid(self, api_version: str, kind: str, namespace: str, name: str) -> str | None:
        """Return an object's uid, read without its content; None: there is none. Raises a setback."""
        path = path_of(api_version, kind, namespace, name)
        answer = await self.requests.ask("GET", path, accept=METADATA)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return str(require_object(answer, kind, name)["metadata"]["uid"])

    async def everywhere(
        self,
        api_version: str,
        plural: str,
        namespaces: Sequence[str],
        *,
        content: bool = True,
        name: str = "",
        labels: str = "",
    ) -> list[dict[str, Any]]:
        """Return all objects of one kind in `namespaces`, or in all; none if the kind is not installed.
        Raises Failed.

        Without `content` only metadata is requested; with `name` only objects of that name, which needs no
        right to others; with `labels` only those that the selector selects.
        """
        accept = JSON if content else METADATA_LIST
        bodies: list[dict[str, Any]] = []
        for path in paths_of_all(api_version, plural, namespaces):
            async for page in self.requests.pages(path, api_version, plural, accept, name, labels):
                bodies += page.get("items") or ()
        return bodies

    async def present(
        self, api_version: str, plural: str, namespaces: Sequence[str]
    ) -> tuple[frozenset[str], int]:
        """(uids of all objects of one kind, the version up to which that is true), read without their
        content. Raises Failed.
        """
        uids: set[str] = set()
        versions = []
        for path in paths_of_all(api_version, plural, namespaces):
            version = 0
            async for page in self.requests.pages(path, api_version, plural, METADATA_LIST):
                uids |= {body["metadata"]["uid"] for body in page.get("items") or ()}
                # The version is the same on each page: all are of one snapshot.
                version = int(page["metadata"].get("resourceVersion") or 0)
            versions.append(version)
        return frozenset(uids), min(versions)

    async def leases(self, namespace: str, labels: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
        """The Leases with these labels, by name. Raises Failed."""
        query = {"labelSelector": ",".join(f"{key}={text}" for key, text in labels.items())}
        path = path_of("coordination.k8s.io/v1", "Lease", namespace)
        page = require_object(await self.requests.ask("GET", path, query), "leases", "")
        return {lease["metadata"]["name"]: lease for lease in page.get("items") or ()}

    async def secret(self, namespace: str, name: str) -> SecretContent | None:
        """A Secret's content by key, or None. Never kept. Raises Failed, which says how to grant the right
        where that is what lacks.
        """
        body = await self._read_granted("Secret", namespace, name)
        if body is None:
            return None
        try:
            content = await decode_values(body.get("data") or {}, base64.b64decode)
        except (binascii.Error, ValueError):
            raise Stalled("InvalidSecret", f"Secret {name} is not base64") from None
        hosts = hosts_of((body["metadata"].get("annotations") or {}).get(ALLOWED_HOSTS))
        return SecretContent(content, Binding(namespace, name, hosts))

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """A ConfigMap's texts by key, or None. Raises Failed, which says how to grant the right where that is
        what lacks.
        """
        body = await self._read_granted("ConfigMap", namespace, name)
        return None if body is None else await decode_values(body.get("data") or {}, str.encode)

    async def _read_granted(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object of a kind that is granted by namespace."""
        with add_grant_command(namespace, "flagstaff-secrets", self._acting):
            return await self.get("v1", kind, namespace, name)


COMPONENT: Final = "flagstaff-controller"
_TOKEN_SECONDS: Final = 600
"""The least that Kubernetes issues a token for."""


class ClusterWriter(ClusterReader):
    """Reads and writes; every error is a setback. `wrote` is called with the verb and the kind of each write
    that was tried; with a `role`, one that leads no longer writes nothing.
    """

    def __init__(
        self,
        transport: ApiTransport,
        *,
        wrote: Callable[[str, str], None] = lambda _verb, _kind: None,
        acting: ServiceAccount | None = None,
        role: Role | None = None,
    ) -> None:
        """`acting`: the service account whose rights are used; None: those of the transport's credentials."""
        super().__init__(transport, acting)
        self._wrote = wrote
        self._role = role

    def begin_write(self, verb: str, kind: str) -> None:
        """Count a write that is about to be tried. Raises Failed (NotLeading)."""
        if self._role is not None:
            self._role.require_leading()
        self._wrote(verb, kind)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiResponse:
        """Send one request once; return any answer. Raises Failed without one."""
        return await self.requests.once(method, path, query or {}, body)

    async def patch_metadata(
        self,
        type_: ResourceType,
        key: ObjectKey,
        *,
        annotations: Mapping[str, str | None] = NOTHING,
        labels: Mapping[str, str | None] = NOTHING,
    ) -> None:
        """Set annotations and labels; None removes one, and others stay. Raises a setback."""
        await self.merge(
            type_, key, {"metadata": {"annotations": dict(annotations), "labels": dict(labels)}}, "metadata"
        )

    async def merge(
        self, type_: ResourceType, key: ObjectKey, body: Mapping[str, Any], verb: str = "patch"
    ) -> None:
        """Change an object as a merge patch (RFC 7386) says; `verb` is what is counted. Raises a setback."""
        path = path_of(type_.api_version, key.kind, key.namespace, key.name)
        self.begin_write(verb, key.kind)
        query = {"fieldManager": COMPONENT}
        answer = await self.requests.ask("PATCH", path, query, body, MERGE, METADATA)
        require_object(answer, key.kind, key.name)

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        """Server-side apply as `manager`: (the object's body, the managers whose manual changes it overwrote,
        or empty).

        A manual change of an object with our label is overwritten. Raises Stalled OwnershipConflict, with the
        other owner's name, where it applies the same fields; Stalled InvalidObject where the API server will
        never take it; Passing ChangedMeanwhile for a manifest `at_version` whose object is at another.
        """
        kind, meta = manifest["kind"], manifest["metadata"]
        path = path_of(manifest["apiVersion"], kind, meta["namespace"], meta["name"])
        self.begin_write("apply", kind)
        answer = await self.requests.ask("PATCH", path, {"fieldManager": manager}, manifest, APPLY)
        editors = ""
        if causes(answer):
            editors = await self._editors(path, manifest, answer)
            query = {"fieldManager": manager, "force": "true"}
            self.begin_write("apply", kind)
            answer = await self.requests.ask("PATCH", path, query, manifest, APPLY)
        if "resourceVersion" in meta:
            require_unchanged(answer, kind, meta["name"])
        with self._granting_delivery(meta["namespace"]):
            return require_object(answer, kind, meta["name"]), editors

    def _granting_delivery(self, namespace: str) -> contextlib.AbstractContextManager[None]:
        """Advise on grants, except for the controller's own account, whose rights are installed."""
        if self._acting is None:
            return contextlib.nullcontext()
        return add_grant_command(namespace, "flagstaff-delivery", self._acting)

    async def _editors(self, path: str, manifest: Mapping[str, Any], conflict: ApiResponse) -> str:
        """The field managers that changed our object by hand. Raises Stalled where it is not ours, or another
        applies it too.
        """
        kind, meta = manifest["kind"], manifest["metadata"]
        there = (await self.requests.ask("GET", path)).body
        labels = (there.get("metadata") or {}).get("labels") or {}
        ours = meta["labels"].items() <= labels.items()
        managers = {editor(cause) for cause in causes(conflict)}
        if not ours or None in managers:
            raise Stalled("OwnershipConflict", conflict_message(kind, meta["name"], conflict))
        return ", ".join(sorted(name for name in managers if name))

    async def delete(
        self, api_version: str, kind: str, namespace: str, name: str, *, uid: str = "", version: str = ""
    ) -> None:
        """Delete an object, if it is there and, where `uid` is given, still that one. Raises a setback;
        Passing (ChangedMeanwhile) where it is not at the `version` that is given.
        """
        given = {"uid": uid, "resourceVersion": version}
        preconditions = {key: text for key, text in given.items() if text}
        options = {"propagationPolicy": "Background", "preconditions": preconditions}
        self.begin_write("delete", kind)
        path = path_of(api_version, kind, namespace, name)
        answer = await self.requests.ask("DELETE", path, {}, options)
        if version:
            require_unchanged(answer, kind, name)
        if answer.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            # A Status, or the object as it was.
            with self._granting_delivery(namespace):
                require_good(answer, kind, name)


class Cluster(ClusterWriter):
    """Our own cluster."""

    def __init__(
        self,
        api: client.ApiClient,
        *,
        wrote: Callable[[str, str], None] = lambda _verb, _kind: None,
        acting: ServiceAccount | None = None,
        role: Role | None = None,
        namespace: str = "default",
    ) -> None:
        """`acting`: see ClusterWriter. `namespace`: the one that the kubeconfig's context names."""
        super().__init__(ClientTransport(api), wrote=wrote, acting=acting, role=role)
        self.api = api
        self.namespace = namespace

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None,
        *,
        context: str | None = None,
        wrote: Callable[[str, str], None] = lambda _verb, _kind: None,
        timing: CredentialTiming = DEFAULT_TIMING,
    ) -> Self:
        """A client as the kubeconfig's context says, the current one unless it is named, or as the pod's
        service account. Raises ConfigException.
        """
        loaded = await load_configuration(kubeconfig, context)

        async def again() -> client.Configuration:
            return (await load_configuration(kubeconfig, loaded.context)).configuration

        return cls(ApiClient(loaded.configuration, again, timing), wrote=wrote, namespace=loaded.namespace)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self.api.configuration.host)

    def impersonate(self, namespace: str, service_account: str) -> Cluster:
        """A client on the same connections, whose requests are judged by the rights of that service account.

        Ours must include the verb `impersonate` on it. Not to be closed: it ends with this one. Raises
        Stalled for what is no service account's name.
        """
        acting = ServiceAccount(namespace, service_account)
        return Cluster(self.api, wrote=self._wrote, acting=acting, role=self._role)

    def with_leadership(self, role: Role) -> Cluster:
        """Return a client on the same connections whose writes are a leader's: each raises Failed
        (NotLeading) once `role` leads no longer.
        """
        return Cluster(self.api, wrote=self._wrote, acting=self._acting, role=role)

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's. Only what differs is sent, so other fields stay as they are and nothing
        conflicts.
        """
        key = resource.key
        path = f"{path_of(resource.api_version, key.kind, key.namespace, key.name)}/status"

        async def send_patch(before: Mapping[str, Any]) -> ApiResponse:
            patch = status_patch(resource.uid, before, status)
            self.begin_write("status", key.kind)
            return await self.requests.ask("PATCH", path, {"fieldManager": COMPONENT}, patch, JSON_PATCH)

        answer = await send_patch(resource.status)
        if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            # The patch does not fit: this is another object of that name, or its status is not as we knew it.
            body = await self.get(resource.api_version, key.kind, key.namespace, key.name)
            if body is None or body["metadata"]["uid"] != resource.uid:
                return None
            answer = await send_patch(body.get("status") or {})
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        return Resource.of(require_object(answer, key.kind, key.name))

    async def set_finalizers(self, resource: Resource, finalizers: Sequence[str]) -> Resource | None:
        """Make `finalizers` those of the object, and return it as it is now; None if it is gone. Raises a
        setback: Passing (ChangedMeanwhile) where the object is at another version.
        """
        key = resource.key
        meta = {"finalizers": [*finalizers], "resourceVersion": resource.resource_version}
        path = path_of(resource.api_version, key.kind, key.namespace, key.name)
        self.begin_write("finalizers", key.kind)
        query = {"fieldManager": COMPONENT}
        answer = await self.requests.ask("PATCH", path, query, {"metadata": meta}, MERGE)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        require_unchanged(answer, key.kind, key.name)
        with add_grant_command(key.namespace, "flagstaff-remote-objects", self._acting):
            return Resource.of(require_object(answer, key.kind, key.name))

    async def token(self, namespace: str, account: str, audiences: Sequence[str]) -> str:
        """A token of a service account for these audiences, valid for ten minutes (TokenRequest of
        authentication.k8s.io/v1). Raises a setback, which says how to grant the right where that is what
        lacks.
        """
        spec = {"audiences": [*audiences], "expirationSeconds": _TOKEN_SECONDS}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        service_account_user(namespace, account)  # refuses what is no account's name
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = await self.requests.ask("POST", path, {}, body)
        with add_grant_command(namespace, "flagstaff-tokens", self._acting):
            require_good(answer, "ServiceAccount", account)
        return str((answer.body.get("status") or {}).get("token") or "")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Clients with the rights of objects' service accounts."""

    cluster: Cluster
    """The client with our own rights."""
    default: str = ""
    """Service account of objects that name none; empty: our own rights are used."""
    require_hosts: bool = False
    """Whether a Secret that is annotated with no hosts may be shown to none."""

    def client(self, namespace: str, account: str | None = None) -> Cluster:
        """Return a client with the rights of an object's service account. Raises Stalled for a bad name."""
        name = account or self.default
        return self.cluster.impersonate(namespace, name) if name else self.cluster

    async def secret(self, namespace: str, name: str, account: str | None = None) -> SecretContent | None:
        """A Secret's content by key, or None. Raises Setback."""
        content = await self.client(namespace, account).secret(namespace, name)
        if content is not None and self.require_hosts:
            content.binding = content.binding.require_annotation()
        return content

    async def config_map(
        self, namespace: str, name: str, account: str | None = None
    ) -> Mapping[str, bytes] | None:
        """A ConfigMap's texts by key, or None. Raises Setback."""
        return await self.client(namespace, account).config_map(namespace, name)
