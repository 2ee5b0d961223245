"""The admission port of one replica, and the keepers of its certificates and of the proxy's."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.configurations.validation import objection
from controller.kube.adapters.certificates import AdmissionObjects, ProxyCertificates
from controller.pods.admission.known_objects import KnownObjects
from controller.pods.admission.webhooks import LIMITS, ServedCertificate, Validator
from controller.pods.certificates.renewal import renewed
from controller.pods.certificates.rotation import SERVING, STARTING, CertificateRotation
from controller.pods.injection.installation import Options
from controller.runtime.clock import now
from evaluator.http.offload import Offload
from evaluator.http.routes import merged
from evaluator.http.server.listener import Listener
from evaluator.http.server.tls import TlsFiles

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.app.settings import ControllerSettings
    from controller.kube.client import Cluster
    from controller.pods.admission.webhooks import Injector
    from controller.runtime.objects.cache import Cache
    from controller.runtime.process.leadership import Role
    from controller.runtime.process.metrics import Metrics

_DRAIN: Final = 2.0


@dataclass(frozen=True, slots=True)
class Admission:
    """The open port, and the keeper of its certificates; None: the user manages them."""

    port: int
    keeper: CertificateRotation | None

    @property
    def state(self) -> str:
        """For /readyz."""
        return SERVING if self.keeper is None else self.keeper.state

    @property
    def settled(self) -> bool:
        """Whether the port's start is complete."""
        return self.state != STARTING


def known_objects(settings: ControllerSettings, objects: Cache) -> KnownObjects:
    """What pods may name."""
    return KnownObjects(objects, settings.namespaces, open=bool(settings.allow_cross_namespace))


def options_of(settings: ControllerSettings) -> Options:
    """Return the options that all evaluators share."""
    return Options(
        image=settings.evaluator_image,
        proxy_address=settings.proxy_address or f"flagstaff-proxy.{settings.namespace}.svc:8015",
        proxy_audience=settings.proxy_audience,
        proxy_ca=settings.proxy_ca,
        compat=bool(settings.compat),
        flag_files=settings.flag_files,
        flag_readers=settings.flag_readers,
        proxy_on_demand=settings.proxy_replicas > 0,
    )


@contextlib.asynccontextmanager
async def open_admission(
    settings: ControllerSettings, metrics: Metrics, cluster: Cluster, role: Role, webhook: Injector
) -> AsyncIterator[Admission]:
    """Open the port while the block runs. Raises OSError if the port or a certificate is unavailable."""
    with tempfile.TemporaryDirectory(prefix="flagstaff-admission-") as folder:
        keeper, callers = None, settings.admission_client_ca or None
        if settings.admission_cert:
            files = TlsFiles(settings.admission_cert, settings.admission_key, callers)
        else:
            names = _names(settings.namespace)
            # No client trusts it yet: the port is open before the cluster is asked.
            served = ServedCertificate(Path(folder), renewed(None, names, now()), callers)
            store = AdmissionObjects(cluster, settings.namespace)
            keeper = CertificateRotation("admission", store, names, lambda: role.leading, served.replace)
            files = served.tls
        offload = Offload()
        validator = Validator(objection, offload, metrics.reviewed, settings.namespaces)
        routes = merged(webhook.routes(), validator.routes())
        listener = Listener(routes, LIMITS, name="admission")
        port = await listener.start(
            settings.admission_host or settings.host, settings.admission_port, tls=files
        )
        metrics.ports.port(listener.name, listener)
        try:
            yield Admission(port, keeper)
        finally:
            await listener.drain(_DRAIN)
            offload.close()


def proxy_keeper(settings: ControllerSettings, cluster: Cluster, role: Role) -> CertificateRotation | None:
    """Return the keeper of the proxy's certificates; None if the installation does not use it."""
    if not settings.proxy_certificates:
        return None
    store = ProxyCertificates(cluster, settings.namespace, settings.proxy_ca, settings.namespaces)
    return CertificateRotation("the proxy", store, _proxy_names(settings), lambda: role.leading)


def _proxy_names(settings: ControllerSettings) -> list[str]:
    """The names in the certificate: those of the Service, those that clients use, and a forwarded port."""
    service = f"flagstaff-proxy.{settings.namespace}.svc"
    called = settings.proxy_address.rpartition(":")[0].strip("[]")
    return [*dict.fromkeys(filter(None, (service, f"{service}.cluster.local", called, "localhost")))]


def _names(namespace: str) -> list[str]:
    """The names in the certificate: those of the Service, and this machine."""
    service = f"flagstaff-admission.{namespace}.svc"
    return [service, f"{service}.cluster.local", "localhost", "127.0.0.1"]
