"""What stages write beside their own kinds: Secrets of certificates, and workloads.

Secrets, and the objects with the trusted authorities, are created by the installation: our rights only allow
to change them.

Rights to workloads and what runs for users are the installation's, most of them given by namespace: a refusal
says by which command.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import CONFIG_MAP, DEPLOYMENT, POD
from controller.api.meta import ObjectKey, Resource
from controller.kube.answers import ServiceAccount, add_grant_command, path_of, require_good, require_object
from controller.kube.requests import JSON, MERGE
from controller.pods.flagd_objects import MANAGED_BY, OURS
from controller.pods.installation import EVALUATOR, INJECTED, ON_NODE
from controller.proxy.node_pods import NodePod
from controller.runtime.clock import now
from controller.runtime.plain_text import json_object
from controller.runtime.setbacks import Failed, Setback, Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from controller.api.kind import ResourceType
    from controller.kube.client import Accounts, Cluster
    from controller.pods.flag_file import FlagFile


log = logging.getLogger(__name__)

_ADMISSION_SECRET: Final = "flagstaff-admission"  # noqa: S105 - a name
PROXY_SECRET: Final = "flagstaff-proxy-tls"  # noqa: S105 - a name
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_INJECTION: Final = ("MutatingWebhookConfiguration", "flagstaff-injection")
"""(kind, name) of a configuration."""
_VALIDATION: Final = ("ValidatingWebhookConfiguration", "flagstaff-validation")
_OURS: Final = ".flagstaff.dev"
"""The end of the names of our webhooks in them."""
WRITTEN: Final = "flagstaff.dev/authorities"
"""The annotation with the digest of what was written: ConfigMaps are compared without reading what else
their owners keep in them.
"""


class CertificateSecret:
    """Reading and writing of the keeper's Store."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._path = path_of("v1", "Secret", namespace, name)
        self._seen: dict[str, Any] = {}
        self.now = now()
        """See CertificateStore."""

    async def read(self) -> Mapping[str, bytes] | None:
        """See CertificateStore."""
        answer = await self._cluster.request("GET", self._path)
        self.now = answer.date or now()
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        self._seen = require_object(answer, "Secret", self._name)
        try:
            return {name: base64.b64decode(text) for name, text in (self._seen.get("data") or {}).items()}
        except (binascii.Error, ValueError):
            return {}

    async def write(self, data: Mapping[str, bytes]) -> bool:
        """See CertificateStore."""
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        body = {**self._seen, "data": {**(self._seen.get("data") or {}), **encoded}}
        answer = await self._cluster.request("PUT", self._path, {}, body)
        if answer.status == HTTPStatus.CONFLICT:
            return False
        require_object(answer, "Secret", self._name)
        return True


class AdmissionObjects(CertificateSecret):
    """The webhook's certificates, and what the API server trusts. Implements CertificateStore."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, namespace, _ADMISSION_SECRET)
        self._complaint = ""

    async def trust(self, authorities: bytes) -> None:
        """See CertificateStore. A missing configuration is skipped: nothing is sent to us for it."""
        wanted = base64.b64encode(authorities).decode()
        await self._trust(*_INJECTION, wanted)
        try:
            await self._trust(*_VALIDATION, wanted)
            complaint = ""
        except Setback as setback:
            # Pods must not wait for it: without it flags are stored as they are.
            complaint = setback.message
        if complaint not in {"", self._complaint}:
            log.warning("flags that are written by hand are not judged as they are applied: %s", complaint)
        self._complaint = complaint

    async def _trust(self, kind: str, name: str, wanted: str) -> None:
        path = f"{_GROUP}/{kind.lower()}s/{name}"
        answer = await self._cluster.request("GET", path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        configuration = require_object(answer, kind, name)
        webhooks = [
            webhook
            for webhook in configuration.get("webhooks") or ()
            if str(webhook.get("name")).endswith(_OURS)
        ]
        if all(webhook["clientConfig"].get("caBundle") == wanted for webhook in webhooks):
            return
        for webhook in webhooks:
            webhook["clientConfig"]["caBundle"] = wanted
        changed = await self._cluster.request("PUT", path, {}, configuration)
        if changed.status != HTTPStatus.CONFLICT:
            # Another replica wrote first: the next check reads the result.
            require_object(changed, kind, name)


class ProxyCertificates(CertificateSecret):
    """The Secret of the proxy's certificates, and the ConfigMaps from which its clients take the authorities
    to trust: `ca.crt` of a ConfigMap of their namespace with one name. Implements the keeper's Store.
    """

    def __init__(self, cluster: Cluster, namespace: str, config_map: str, namespaces: Sequence[str]) -> None:
        """`config_map`: that name; empty: none is written. `namespaces`: where it is searched for; empty: in
        all there are.
        """
        super().__init__(cluster, namespace, PROXY_SECRET)
        self._config_map = config_map
        self._namespaces = namespaces

    async def read(self) -> Mapping[str, bytes] | None:
        """See CertificateStore. Raises Stalled for a certificate that another party issued."""
        data = await super().read()
        if data and data.get("tls.crt") and "ca.key" not in data:
            raise Stalled(
                "ForeignCertificate",
                f"Secret {PROXY_SECRET} has a certificate that we did not make; delete it, or leave out "
                "--proxy-certificates",
            )
        return data

    async def trust(self, authorities: bytes) -> None:
        """See CertificateStore. If one ConfigMap cannot be changed, the others are."""
        if not self._config_map:
            return
        digest = f"sha256:{hashlib.sha256(authorities).hexdigest()}"
        config_maps = await self._cluster.everywhere(
            "v1", CONFIG_MAP.plural, self._namespaces, content=False, name=self._config_map
        )
        patch = {
            "metadata": {"annotations": {WRITTEN: digest}},
            "data": {"ca.crt": authorities.decode("ascii")},
        }
        last: Failed | None = None
        for meta in (item["metadata"] for item in config_maps):
            if (meta.get("annotations") or {}).get(WRITTEN) == digest:
                continue
            key = ObjectKey(CONFIG_MAP.kind, meta["namespace"], meta["name"])
            try:
                await self._cluster.merge(CONFIG_MAP, key, patch)
            except Setback as setback:
                last = Failed(setback.reason, f"namespace {key.namespace}: {setback.message}")
        if last is not None:
            raise last


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
    """ConfigMaps of flags, and the pods that read them. Implements `flag_files.FileObjects` and
    `flag_files.TouchedPods`. Every method raises a Setback.
    """

    async def config_map(self, file: FlagFile) -> dict[str, Any] | None:
        """See FileObjects."""
        return await self.get("v1", CONFIG_MAP.kind, file.namespace, file.name)

    async def adopt(self, file: FlagFile) -> None:
        """See FileObjects."""
        key = ObjectKey(CONFIG_MAP.kind, file.namespace, file.name)
        with add_grant_command(file.namespace, self.role, None):
            await self.cluster.patch_metadata(CONFIG_MAP, key, labels={MANAGED_BY: OURS})

    async def touch(self, pod: Resource, annotations: Mapping[str, str]) -> None:
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


@dataclass(frozen=True, slots=True)
class ClusterPods:
    """Implements `controller.proxy.node_pods.NodePods`."""

    cluster: Cluster

    async def node_of(self, namespace: str, name: str, uid: str) -> str:
        """The node of a pod; empty: there is no such pod, or it has none. Raises Failed."""
        found = await self._list(f"/api/v1/namespaces/{namespace}/pods", f"metadata.name={name}")
        nodes = (pod["spec"].get("nodeName") for pod in found if pod["metadata"].get("uid") == uid)
        return str(next(nodes, None) or "")

    async def on_node(self, node: str) -> list[NodePod]:
        """All pods of a node that run. Raises Failed."""
        return [_node_pod(pod) for pod in await self._list("/api/v1/pods", f"spec.nodeName={node}")]

    async def _list(self, path: str, fields: str) -> list[dict[str, Any]]:
        answer = await self.cluster.request("GET", path, {"fieldSelector": fields})
        require_good(answer, POD.kind, "")
        return list(answer.body.get("items") or ())


def _node_pod(body: Mapping[str, Any]) -> NodePod:
    meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    given = meta.get("annotations") or {}
    sets = str((json_object(given.get(INJECTED, "")) or {}).get("flagSet", ""))
    asks = given.get(EVALUATOR) == ON_NODE
    # A pod that has ended keeps its address in its status, and another may have it.
    states = [entry.get("state") or {} for entry in status.get("containerStatuses") or ()]
    ended = status.get("phase") in ("Succeeded", "Failed") or (
        "deletionTimestamp" in meta and not any("running" in state for state in states)
    )
    alone = not spec.get("hostNetwork") and not ended
    ips = {str(entry.get("ip")) for entry in status.get("podIPs") or ()} | {str(status.get("podIP") or "")}
    return NodePod(
        meta["namespace"],
        meta["name"],
        str(meta.get("uid") or ""),
        str(spec.get("serviceAccountName") or "default"),
        frozenset(ips - {""}) if alone else frozenset(),
        tuple(filter(None, sets.split(","))) if asks else (),
    )
