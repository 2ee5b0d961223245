"""The API server by plain HTTPS: what tests ask a hundred times must not start a hundred kubectls, nor shake
hands a hundred times.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from urllib3.exceptions import HTTPError

from tests.cluster.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3 import BaseHTTPResponse

    from tests.cluster.plane import Plane

APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
_GROUPS: Final = {
    "flagsource": "apis/flagstaff.dev/v1beta1",
    "flagset": "apis/flagstaff.dev/v1beta1",
    "flaggrant": "apis/flagstaff.dev/v1beta1",
    "flagoverride": "apis/flagstaff.dev/v1beta1",
    "flagpolicy": "apis/flagstaff.dev/v1beta1",
    "flagrollout": "apis/flagstaff.dev/v1beta1",
    "metrictemplate": "apis/flagstaff.dev/v1beta1",
    "flagreceiver": "apis/flagstaff.dev/v1beta1",
    "flagprovider": "apis/flagstaff.dev/v1beta1",
    "flagalert": "apis/flagstaff.dev/v1beta1",
    "flagreceipt": "apis/flagstaff.dev/v1beta1",
    "flagshard": "apis/flagstaff.dev/v1beta1",
    "evaluatorupgrade": "apis/flagstaff.dev/v1beta1",
    "featureflagconfiguration": "apis/core.openfeature.dev/v1beta1",
    "featureflag": "apis/core.openfeature.dev/v1beta1",
    "featureflagsource": "apis/core.openfeature.dev/v1beta1",
    "flagd": "apis/core.openfeature.dev/v1beta1",
    "inprocessconfiguration": "apis/core.openfeature.dev/v1beta1",
    "role": "apis/rbac.authorization.k8s.io/v1",
    "rolebinding": "apis/rbac.authorization.k8s.io/v1",
    "gitrepository": "apis/source.toolkit.fluxcd.io/v1",
    "ocirepository": "apis/source.toolkit.fluxcd.io/v1",
    "bucket": "apis/source.toolkit.fluxcd.io/v1",
    "externalartifact": "apis/source.toolkit.fluxcd.io/v1",
    "configmap": "api/v1",
    "secret": "api/v1",
    "serviceaccount": "api/v1",
    "event": "api/v1",
    "pod": "api/v1",
    "deployment": "apis/apps/v1",
    "replicaset": "apis/apps/v1",
    "statefulset": "apis/apps/v1",
    "daemonset": "apis/apps/v1",
    "job": "apis/batch/v1",
    "cronjob": "apis/batch/v1",
    "poddisruptionbudget": "apis/policy/v1",
    "service": "api/v1",
    "ingress": "apis/networking.k8s.io/v1",
    "httproute": "apis/gateway.networking.k8s.io/v1",
    "lease": "apis/coordination.k8s.io/v1",
}
_SHORT: Final = {"ffc": "featureflagconfiguration", "ff": "featureflag"}


class Refused(RuntimeError):
    """The API server said no."""


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Of an object, or of all of its kind in a namespace. Kinds as kubectl takes them."""
    kind = _SHORT.get(kind.lower(), kind.lower())
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}{'es' if kind.endswith('ss') else 's'}"
    return f"/{_GROUPS[kind]}/namespaces/{namespace}/{plural}{f'/{name}' if name else ''}"


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        raise OSError(str(error)) from error


def _require_accepted(response: BaseHTTPResponse) -> None:
    if response.status >= 400:
        raise Refused(f"{response.status} {response.data.decode(errors='replace')}")


class Api:
    """The administrator's way."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a watch, until it ends. Raises Refused, OSError."""
        with (
            _translate_errors(),
            contextlib.closing(self._request("GET", path, preload_content=False)) as response,
        ):
            _require_accepted(response)
            yield from response

    def ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One exchange, again where the API server asks to come again; a body of bytes is sent as it is.
        Raises Refused, OSError.
        """
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self._ask(method, path, body, content_type)
            except Refused as refusal:
                # An API server that just started says so while it fills its caches.
                if not str(refusal).startswith("429") or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _ask(self, method: str, path: str, body: Any, content_type: str) -> dict[str, Any]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with _translate_errors():
            response = self._request(
                method, path, body=data, headers={"Content-Type": content_type}, timeout=30
            )
        _require_accepted(response)
        found: dict[str, Any] = response.json()
        return found

    def _request(self, method: str, path: str, **more: Any) -> BaseHTTPResponse:
        headers = {"Authorization": f"Bearer {self._plane.token}", **more.pop("headers", {})}
        return self._plane.connections.request(
            method, self._plane.url + path, headers=headers, retries=False, **more
        )

    def token(self, namespace: str, account: str, *audiences: str, **bound: str) -> str:
        """One of a service account, for a day; `bound` to an object by `kind` and `name`."""
        to = {"apiVersion": "v1", **bound} if bound else None
        spec = {"audiences": audiences, "expirationSeconds": 86400, "boundObjectRef": to}
        path = f"{path_of('serviceaccount', namespace, account)}/token"
        text: str = self.ask("POST", path, {"spec": spec})["status"]["token"]
        return text

    def writes(self) -> Counter[str]:
        """The API server's own count of writes so far, of all clients, by resource."""
        found: Counter[str] = Counter()
        for line in b"".join(self.lines("/metrics")).decode().splitlines():
            if line.startswith("apiserver_request_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if labels["verb"] in {"POST", "PUT", "PATCH", "APPLY"}:
                    found[labels["resource"]] += int(float(line.rpartition(" ")[2]))
        return found

    def find(self, path: str) -> dict[str, Any]:
        """An object; empty where there is none."""
        try:
            return self.ask("GET", path)
        except Refused as refusal:
            if str(refusal).startswith("404"):
                return {}
            raise

    def items(self, path: str) -> list[dict[str, Any]]:
        """All objects at a path."""
        return list(self.ask("GET", path)["items"])

    def apply(self, namespace: str, manifest: dict[str, Any], *, manager: str = "tests") -> None:
        """Server-side apply."""
        path = path_of(manifest["kind"], namespace, manifest["metadata"]["name"])
        if manifest["kind"] == "FeatureFlagConfiguration":
            path = path.replace("core.openfeature.dev/v1beta1", manifest["apiVersion"])
        self.ask("PATCH", f"{path}?fieldManager={manager}&force=true", manifest, APPLY)
