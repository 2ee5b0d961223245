"""Reads objects of the API server: one, all of a kind, or their metadata alone."""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from controller.kube.adapters.granting import ServiceAccount, add_grant_command
from controller.kube.answers import require_object
from controller.kube.paths import path_of, paths_of_all
from controller.kube.requests import JSON, METADATA, METADATA_LIST, Requests, decode_values
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.tenancy.secret_hosts import ALLOWED_HOSTS, Binding, SecretContent, hosts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kubernetes.aio import client


class ClusterReader:
    """The reading half of `Cluster`; every error is a setback."""

    def __init__(self, api: client.ApiClient, acting: ServiceAccount | None = None) -> None:
        """`acting`: the service account whose rights are used; None: our own."""
        self.api = api
        self.requests = Requests(api, headers={} if acting is None else {"Impersonate-User": acting.user})
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
    ) -> list[dict[str, Any]]:
        """Return all objects of one kind in `namespaces`, or in all; none if the kind is not installed.
        Raises Failed.

        Without `content` only metadata is requested; with `name` only objects of that name, which needs no
        right to others.
        """
        accept = JSON if content else METADATA_LIST
        bodies: list[dict[str, Any]] = []
        for path in paths_of_all(api_version, plural, namespaces):
            async for page in self.requests.pages(path, api_version, plural, accept, name):
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

    async def leases(self, namespace: str, labels: Mapping[str, str]) -> dict[str, str]:
        """The Leases with these labels: when each was renewed last, by name. Raises Failed."""
        query = {"labelSelector": ",".join(f"{key}={text}" for key, text in labels.items())}
        path = path_of("coordination.k8s.io/v1", "Lease", namespace)
        page = require_object(await self.requests.ask("GET", path, query), "leases", "")
        return {
            lease["metadata"]["name"]: str((lease.get("spec") or {}).get("renewTime") or "")
            for lease in page.get("items") or ()
        }

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
