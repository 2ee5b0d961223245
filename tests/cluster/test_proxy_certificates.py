"""The proxy's certificate without a cert-manager: made by the controller, with the rights of its manifest,
served by a proxy and believed by its clients.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.api import Api
from tests.cluster.controllers import SYSTEM, controller
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.proxies import proxy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

SECRET: Final = f"/api/v1/namespaces/{SYSTEM}/secrets/flagstaff-proxy-tls"
SERVICE: Final = f"flagstaff-proxy.{SYSTEM}.svc"


def secret_content(plane: Plane) -> dict[str, bytes]:
    """What the Secret holds."""
    data: dict[str, str] = Api(plane).find(SECRET).get("data") or {}
    return {name: base64.b64decode(text) for name, text in data.items()}


def trusted_authorities(plane: Plane, namespace: str) -> bytes:
    """Whom clients of the namespace trust."""
    found = Api(plane).find(f"/api/v1/namespaces/{namespace}/configmaps/flagstaff-ca")
    return str((found.get("data") or {}).get("ca.crt", "")).encode()


def mount_secret(plane: Plane, folder: Path) -> None:
    """The Secret's files, as the kubelet puts them before the proxy."""
    data = secret_content(plane)
    for name in ("tls.key", "tls.crt"):
        (folder / name).write_bytes(data[name])


def is_believed(port: int, authorities: bytes) -> bool:
    """Whether a client that trusts just these believes the proxy to be the Service."""
    context = ssl.create_default_context(cadata=authorities.decode())
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname=SERVICE),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return False


def follows(plane: Plane, namespace: str, before: bytes) -> bool:
    """Whether there is an authority, another than before, that the namespace has."""
    authorities = secret_content(plane).get("ca.crt", b"")
    return authorities not in {b"", before} and trusted_authorities(plane, namespace) == authorities


def test_clients_trust_a_proxy_whose_certificate_the_controller_made(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    spare.kubectl("apply", "-f", str(ROOT / "deploy/components/proxy-tls/certificates.yaml"))
    spare.kubectl("create", "configmap", "flagstaff-ca", "-n", spare_namespace)
    spare.kubectl("create", "configmap", "other", "-n", spare_namespace, "--from-literal=ca.crt=theirs")
    words = ("--lease-name", "certificates", "--proxy-certificates", "--proxy-ca", "flagstaff-ca")
    with controller(spare, tmp_path / "controller", *words) as keeping:
        within(partial(follows, spare, spare_namespace, b""), keeping.log_text)
        page: dict[str, Any] = json.loads(keeping.ask("/readyz")[1])
        assert page["certificates"]["proxy"] == "kept"
        mount_secret(spare, tmp_path)
        files = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
        with proxy(spare, tmp_path / "proxy", "--auth", "enforce", *files) as serving:
            before = trusted_authorities(spare, spare_namespace)
            assert is_believed(serving.sync, before)
            # A Secret that lost its content gets another authority, and everybody follows.
            spare.kubectl("patch", "secret", "-n", SYSTEM, "flagstaff-proxy-tls",
                          "--type=json", "-p", '[{"op":"remove","path":"/data"}]')  # fmt: skip
            within(partial(follows, spare, spare_namespace, before), keeping.log_text)
            mount_secret(spare, tmp_path)
            after = trusted_authorities(spare, spare_namespace)
            within(lambda: is_believed(serving.sync, after), serving.log_text)
            assert not is_believed(serving.sync, before)
    untouched = Api(spare).find(f"/api/v1/namespaces/{spare_namespace}/configmaps/other")
    assert untouched["data"] == {"ca.crt": "theirs"}
