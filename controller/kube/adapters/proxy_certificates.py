"""The Secret of the proxy's certificates, and the ConfigMaps of its clients that hold the authorities to
trust. All are installed beforehand: we may change those of these names, and create none.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from controller.api.kinds import CONFIG_MAP
from controller.api.meta import ObjectKey
from controller.kube.adapters.certificates import CertificateSecret
from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.kube.client import Cluster

SECRET: Final = "flagstaff-proxy-tls"  # noqa: S105 - a name
WRITTEN: Final = "flagstaff.dev/authorities"
"""The annotation with the digest of what was written: ConfigMaps are compared without reading what else
their owners keep in them.
"""


class ProxyCertificates(CertificateSecret):
    """Implements the keeper's Store. Clients find authorities as `ca.crt` of a ConfigMap of their namespace
    with one name.
    """

    def __init__(self, cluster: Cluster, namespace: str, config_map: str, namespaces: Sequence[str]) -> None:
        """`config_map`: that name; empty: none is written. `namespaces`: where it is looked for; empty: in
        all there are.
        """
        super().__init__(cluster, namespace, SECRET)
        self._config_map = config_map
        self._namespaces = namespaces

    async def read(self) -> Mapping[str, bytes] | None:
        """As Store has it. Raises Stalled where another party issued the certificate, which is left alone."""
        data = await super().read()
        if data and data.get("tls.crt") and "ca.key" not in data:
            raise Stalled(
                "ForeignCertificate",
                f"Secret {SECRET} has a certificate that we did not make; delete it, or leave out "
                "--proxy-certificates",
            )
        return data

    async def trust(self, authorities: bytes) -> None:
        """As Store has it. One ConfigMap that cannot be changed keeps no other from it."""
        if not self._config_map:
            return
        digest = f"sha256:{hashlib.sha256(authorities).hexdigest()}"
        found = await self._cluster.everywhere(
            "v1", CONFIG_MAP.plural, self._namespaces, content=False, name=self._config_map
        )
        patch = {
            "metadata": {"annotations": {WRITTEN: digest}},
            "data": {"ca.crt": authorities.decode("ascii")},
        }
        last: Failed | None = None
        for meta in (each["metadata"] for each in found):
            if (meta.get("annotations") or {}).get(WRITTEN) == digest:
                continue
            key = ObjectKey(CONFIG_MAP.kind, meta["namespace"], meta["name"])
            try:
                await self._cluster.merge(CONFIG_MAP, key, patch)
            except Setback as setback:
                last = Failed(setback.reason, f"namespace {key.namespace}: {setback.message}")
        if last is not None:
            raise last
