"""Keeps the proxy's certificates, where no other program does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.certificates.keeper import Keeper
from controller.kube.adapters.certificates import ProxyCertificates

if TYPE_CHECKING:
    from controller.kube.client import Cluster
    from controller.runtime.process.leadership import Role
    from controller.settings import ControllerSettings


def keeper_of(settings: ControllerSettings, cluster: Cluster, role: Role) -> Keeper | None:
    """None: the installation does not ask for it."""
    if not settings.proxy_certificates:
        return None
    store = ProxyCertificates(cluster, settings.namespace, settings.proxy_ca, settings.namespaces)
    return Keeper("the proxy", store, _names(settings), lambda: role.leading)


def _names(settings: ControllerSettings) -> list[str]:
    """The names in the certificate: those of the Service, those that clients use, and a forwarded port."""
    service = f"flagstaff-proxy.{settings.namespace}.svc"
    called = settings.proxy_address.rpartition(":")[0].strip("[]")
    return [
        *dict.fromkeys(each for each in (service, f"{service}.cluster.local", called, "localhost") if each)
    ]
