"""The Secret of the webhook's certificates, and what the API server trusts. Both are there before us: we may
replace these two, and create none.
"""

from __future__ import annotations

import base64
import binascii
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from controller.kube.answers import expected
from controller.kube.paths import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.kube.client import Cluster

SECRET: Final = "flagstaff-admission"  # noqa: S105 - a name
CONFIGURATION: Final = "flagstaff-injection"
WEBHOOK: Final = "inject.flagstaff.dev"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class AdmissionObjects:
    """Implements the keeper's Store."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._path = path_of("v1", "Secret", namespace, SECRET)
        self._seen: dict[str, Any] = {}

    async def read(self) -> Mapping[str, bytes] | None:
        """As Store has it."""
        answer = await self._cluster.request("GET", self._path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        self._seen = expected(answer, "Secret", SECRET)
        try:
            return {name: base64.b64decode(text) for name, text in (self._seen.get("data") or {}).items()}
        except (binascii.Error, ValueError):
            return {}

    async def write(self, data: Mapping[str, bytes]) -> bool:
        """As Store has it."""
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        body = {**self._seen, "data": {**(self._seen.get("data") or {}), **encoded}}
        answer = await self._cluster.request("PUT", self._path, {}, body)
        if answer.status == HTTPStatus.CONFLICT:
            return False
        expected(answer, "Secret", SECRET)
        return True

    async def trust(self, authorities: bytes) -> None:
        """As Store has it. A configuration that is not there is nobody's loss: no pod is sent to us."""
        path = f"{_CONFIGURATIONS}/{CONFIGURATION}"
        answer = await self._cluster.request("GET", path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        found = expected(answer, "MutatingWebhookConfiguration", CONFIGURATION)
        wanted = base64.b64encode(authorities).decode()
        webhooks = [each for each in found.get("webhooks") or () if each.get("name") == WEBHOOK]
        if all(each["clientConfig"].get("caBundle") == wanted for each in webhooks):
            return
        for each in webhooks:
            each["clientConfig"]["caBundle"] = wanted
        changed = await self._cluster.request("PUT", path, {}, found)
        if changed.status != HTTPStatus.CONFLICT:
            # Of a conflict the next look sees the end.
            expected(changed, "MutatingWebhookConfiguration", CONFIGURATION)
