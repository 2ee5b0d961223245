"""What the API server trusts of our admission port."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, cast

from controller.kube.adapters import AdmissionObjects
from controller.kube.answers import ApiResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from controller.kube.client import Cluster

GROUP = "/apis/admissionregistration.k8s.io/v1"
INJECTION = f"{GROUP}/mutatingwebhookconfigurations/flagstaff-injection"
VALIDATION = f"{GROUP}/validatingwebhookconfigurations/flagstaff-validation"


class FakeCluster:
    """Has the two configurations, and refuses what is `forbidden`."""

    def __init__(self, forbidden: str = "") -> None:
        self.forbidden = forbidden
        self.objects: dict[str, dict[str, Any]] = {
            path: {"metadata": {}, "webhooks": [{"name": f"{name}.flagstaff.dev", "clientConfig": {}}]}
            for path, name in ((INJECTION, "inject"), (VALIDATION, "validate"))
        }

    async def request(
        self, method: str, path: str, _query: object = None, body: Mapping[str, Any] | None = None
    ) -> ApiResponse:
        if path == self.forbidden:
            return ApiResponse(403, {"message": "forbidden"})
        if method == "PUT" and body is not None:
            self.objects[path] = dict(body)
        return ApiResponse(200, self.objects[path])

    def trusted_authorities(self, path: str) -> bytes:
        return base64.b64decode(self.objects[path]["webhooks"][0]["clientConfig"].get("caBundle", ""))


async def test_both_configurations_trust_the_authorities() -> None:
    cluster = FakeCluster()
    await AdmissionObjects(cast("Cluster", cluster), "system").trust(b"authorities")
    assert cluster.trusted_authorities(INJECTION) == cluster.trusted_authorities(VALIDATION) == b"authorities"


async def test_pods_do_not_wait_for_the_validation_that_may_not_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(forbidden=VALIDATION)
    objects = AdmissionObjects(cast("Cluster", cluster), "system")
    with caplog.at_level(logging.WARNING, "controller.kube.adapters"):
        await objects.trust(b"authorities")
        await objects.trust(b"authorities")
    assert cluster.trusted_authorities(INJECTION) == b"authorities"
    assert len(caplog.records) == 1
    assert "are not judged as they are applied" in caplog.text
