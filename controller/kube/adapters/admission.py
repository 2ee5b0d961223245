"""The Secret of the webhook's certificates, and what the API server trusts. Both are there before us: we may
replace these two, and create none.
"""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from controller.kube.adapters.certificates import CertificateSecret
from controller.kube.answers import expected

if TYPE_CHECKING:
    from controller.kube.client import Cluster

SECRET: Final = "flagstaff-admission"  # noqa: S105 - a name
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_CONFIGURATIONS: Final = (
    ("MutatingWebhookConfiguration", "flagstaff-injection", "inject.flagstaff.dev"),
    ("ValidatingWebhookConfiguration", "flagstaff-validation", "validate.flagstaff.dev"),
)
"""Kind and name of each, and the webhook in it that is ours."""


class AdmissionObjects(CertificateSecret):
    """Implements the keeper's Store."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, namespace, SECRET)

    async def trust(self, authorities: bytes) -> None:
        """As Store has it. Of a configuration that is not there, nothing is sent to us."""
        wanted = base64.b64encode(authorities).decode()
        for kind, name, webhook in _CONFIGURATIONS:
            await self._trust(kind, name, webhook, wanted)

    async def _trust(self, kind: str, name: str, webhook: str, wanted: str) -> None:
        path = f"{_GROUP}/{kind.lower()}s/{name}"
        answer = await self._cluster.request("GET", path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return
        found = expected(answer, kind, name)
        webhooks = [each for each in found.get("webhooks") or () if each.get("name") == webhook]
        if all(each["clientConfig"].get("caBundle") == wanted for each in webhooks):
            return
        for each in webhooks:
            each["clientConfig"]["caBundle"] = wanted
        changed = await self._cluster.request("PUT", path, {}, found)
        if changed.status != HTTPStatus.CONFLICT:
            # Of a conflict the next look sees the end.
            expected(changed, kind, name)
