"""Selects the rights with which the controller acts for an object: a service account's, or its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.kube.client import Cluster
    from controller.runtime.tenancy.secret_hosts import SecretContent


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
