"""deploy/admission.yaml on a plane that has no Services: the API server asks a port of this machine."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.cluster.api import Api
from tests.cluster.patience import within

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.plane import Plane

_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS: Final = f"{_GROUP}/mutatingwebhookconfigurations/flagstaff-injection"
VALIDATION: Final = f"{_GROUP}/validatingwebhookconfigurations/flagstaff-validation"
SECRET: Final = "/api/v1/namespaces/flagstaff-system/secrets/flagstaff-admission"  # noqa: S105 - a path


def install_admission(plane: Plane, manifest: Path, port: int) -> None:
    """Apply it as users do, but for the address; returns once the API server trusts who answers there."""
    documents = [*yaml.load_all(manifest.read_text(encoding="utf-8"), yaml.CSafeLoader)]
    for each in documents:
        for webhook in each.get("webhooks", ()):
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
    plane.kubectl("apply", "-f", "-", given="---\n".join(json.dumps(each) + "\n" for each in documents))
    within(lambda: authorities(plane) and authorities(plane) == trusted(plane))


def authorities(plane: Plane) -> bytes:
    """Those of the Secret; empty while there are none."""
    return base64.b64decode((Api(plane).find(SECRET).get("data") or {}).get("ca.crt", ""))


def trusted(plane: Plane) -> bytes:
    """Those that the API server trusts for both webhooks; empty while these differ."""
    found: list[dict[str, Any]] = [Api(plane).find(path) for path in (WEBHOOKS, VALIDATION)]
    bundles = {each["webhooks"][0]["clientConfig"].get("caBundle", "") for each in found}
    return base64.b64decode(bundles.pop()) if len(bundles) == 1 else b""
