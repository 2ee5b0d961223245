"""The certificates that the controller makes and renews for servers that must not write them themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.kube.adapters.certificates import AdmissionObjects, ProxyCertificates
from controller.pods.certificates.rotation import CertificateRotation

if TYPE_CHECKING:
    from controller.app.settings.process_settings import ControllerSettings
    from controller.kube.client import Cluster
    from controller.runtime.process.leadership import Role


def certificate_rotations(
    settings: ControllerSettings, cluster: Cluster, role: Role
) -> dict[str, CertificateRotation]:
    """By the server that they are for: admission, and the proxy where the settings ask for it."""
    place = settings.namespace
    service = f"flagstaff-admission.{place}.svc"
    names = [service, f"{service}.cluster.local", "localhost", "127.0.0.1"]
    made = {"admission": CertificateRotation("admission", AdmissionObjects(cluster, place), names, role)}
    if settings.proxy_certificates:
        store = ProxyCertificates(cluster, place, settings.proxy_ca, settings.namespaces)
        made["proxy"] = CertificateRotation("the proxy", store, _proxy_names(settings), role)
    return made


def _proxy_names(settings: ControllerSettings) -> list[str]:
    """The names in the certificate: those of the Service, those that clients use, and a forwarded port."""
    service = f"flagstaff-proxy.{settings.namespace}.svc"
    called = settings.proxy_address.rpartition(":")[0].strip("[]")
    return [*dict.fromkeys(filter(None, (service, f"{service}.cluster.local", called, "localhost")))]
