"""The Secrets of our servers' certificates, and the objects with the trusted authorities. All are created by
the installation: our rights only allow to change them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from controller.api.kinds import CONFIG_MAP
from controller.api.objects.meta import ObjectKey
from controller.kube.answers import require_object
from controller.kube.paths import path_of
from controller.runtime.clock import now
from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.kube.client import Cluster

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
