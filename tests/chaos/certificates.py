"""The certificates of proxies and webhook: made and renewed by the controllers in their Secrets, and put
before the proxies and their clients as a kubelet does.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography import x509

from controller.pods.certificates import certificates_of, renew
from controller.runtime.clock import now
from tests.clients.upstreams import replace
from tests.cluster.admission import SECRET as ADMISSION
from tests.cluster.admission import AdmissionProcess, admission, trusted_authorities
from tests.cluster.api import Api, Refused
from tests.cluster.controllers import SYSTEM
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.pods.certificates import Certificates
    from tests.cluster.spines import Spine

HOST: Final = "127.0.0.1"
CONFIG_MAP: Final = "flagstaff-ca"
KEPT: Final = ("--proxy-certificates", "--proxy-ca", CONFIG_MAP, "--proxy-address", f"{HOST}:8015")
"""Options of the controllers that keep them."""
_PROXY: Final = f"/api/v1/namespaces/{SYSTEM}/secrets/flagstaff-proxy-tls"
_LONG_AGO: Final = timedelta(days=100)
"""Longer than a certificate lives."""


class ServerCertificates:
    """Of all servers, and the files that they and their clients read."""

    def __init__(self, spine: Spine, folder: Path) -> None:
        self._spine, self._folder, self._api = spine, folder, Api(spine.plane)
        self._admission: AdmissionProcess | None = None
        self.authorities = folder / "ca.crt"
        self.files = ("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key"))

    def install(self) -> None:
        """Before the controllers start."""
        plane = self._spine.plane
        plane.kubectl("apply", "-f", str(ROOT / "deploy/components/proxy-tls/certificates.yaml"))
        plane.kubectl("create", "configmap", CONFIG_MAP, "-n", self._spine.name)

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Once a controller works."""
        folder = self._folder / "admission"
        self._admission = stack.enter_context(admission(self._spine.plane, folder))
        within(self.mount)

    def mount(self) -> bool:
        """Put what the cluster holds before the proxies and their clients; False where it is not current."""
        try:
            found, known = self._read_kept(_PROXY), self._authorities()
        except (OSError, Refused):
            return False
        if found is None or found.authorities != known or not valid(found.certificate):
            return False
        self._write(found)
        if self._admission is not None:
            self._admission.mount()
        return True

    def expire(self) -> None:
        """As where nobody renewed them in time: in the Secrets, where the API server answers, and at the
        proxies.
        """
        for path in (ADMISSION, _PROXY):
            with contextlib.suppress(OSError, Refused):
                found = self._read_kept(path)
                if found is None:
                    continue
                # Another name is reason enough for another certificate.
                old = renew(found, [HOST, "expired.example"], now() - _LONG_AGO)
                if path == _PROXY:
                    self._write(old)
                data = {name: base64.b64encode(content).decode() for name, content in old.data().items()}
                self._api.ask("PATCH", path, {"data": data}, "application/merge-patch+json")

    def find_doubted(self, sync: Mapping[str, int]) -> str:
        """Whose certificate the API server or a client of the proxies would not believe; empty: nobody's."""
        own = {} if self._admission is None else {"admission": self._admission.admission}
        for ports, authorities in (
            (own, trusted_authorities(self._spine.plane)),
            (sync, self._authorities()),
        ):
            for name, port in ports.items():
                if why := refusal(port, authorities):
                    return f"the certificate of {name}: {why}"
        return ""

    def _read_kept(self, path: str) -> Certificates | None:
        data: dict[str, str] = self._api.find(path).get("data") or {}
        return certificates_of({name: base64.b64decode(text) for name, text in data.items()})

    def _authorities(self) -> bytes:
        """The authorities that the clients of the proxies trust."""
        found = self._api.find(f"/api/v1/namespaces/{self._spine.name}/configmaps/{CONFIG_MAP}")
        return str((found.get("data") or {}).get("ca.crt", "")).encode()

    def _write(self, certificates: Certificates) -> None:
        for path, content in (
            (self.authorities, certificates.authorities),
            (self._folder / "tls.key", certificates.key),
            (self._folder / "tls.crt", certificates.certificate),
        ):
            replace(path, content.decode())


def valid(certificate: bytes) -> bool:
    """Whether a certificate holds now."""
    found = x509.load_pem_x509_certificate(certificate)
    return found.not_valid_before_utc <= now() < found.not_valid_after_utc


def refusal(port: int, authorities: bytes) -> str:
    """Why a client that trusts just these does not believe who answers there; empty: it does."""
    try:
        context = ssl.create_default_context(cadata=authorities.decode())
        with (
            socket.create_connection((HOST, port), 10) as plain,
            context.wrap_socket(plain, server_hostname=HOST),
        ):
            return ""
    except (OSError, ValueError) as error:
        return str(error)
