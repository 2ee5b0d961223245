"""The Secret of the webhook's certificates, and what the API server trusts. Both are there before us: we may
replace these two, and create none.
"""

from __future__ import annotations

import base64
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from controller.kube.adapters.certificates import CertificateSecret
from controller.kube.answers import expected
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from controller.kube.client import Cluster

log = logging.getLogger(__name__)

SECRET: Final = "flagstaff-admission"  # noqa: S105 - a name
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
_INJECTION: Final = ("MutatingWebhookConfiguration", "flagstaff-injection", "inject.flagstaff.dev")
"""Its kind and name, and the webhook in it that is ours."""
_VALIDATION: Final = ("ValidatingWebhookConfiguration", "flagstaff-validation", "validate.flagstaff.dev")


class AdmissionObjects(CertificateSecret):
    """Implements the keeper's Store."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, namespace, SECRET)
        self._complaint = ""

    async def trust(self, authorities: bytes) -> None:
        """As Store has it. Of a configuration that is not there, nothing is sent to us."""
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
