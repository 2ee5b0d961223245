"""The evaluator's container, its volumes, and what applications are told of it. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.injection import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.injection.options import FlagSetFound, Options
    from controller.injection.wanted import Wanted

LOOPBACK: Final = "127.0.0.1"
"""Not `localhost`: where that is ::1 first, some clients try no other."""
_PORT_NAMES: Final = {
    "flags-grpc": names.PORT,
    "flags-mgmt": names.MANAGEMENT_PORT,
    "flags-sync": names.SYNC_PORT,
    "flags-ofrep": names.OFREP_PORT,
}
_POD_FIELDS: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "NODE_NAME": "spec.nodeName",
}
_USER: Final = 65532
"""The image's own."""
_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What pod security `restricted` asks for, and more."""


def container(wanted: Wanted, found: FlagSetFound, namespace: str, options: Options) -> dict[str, Any]:
    """The sidecar of a pod in `namespace`."""
    always = {"restartPolicy": "Always"} if wanted.native else {}
    return {
        "name": names.CONTAINER,
        "image": wanted.image or options.image,
        **always,
        "args": _arguments(wanted, f"{namespace}/{found.name}", options),
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _POD_FIELDS.items()
        ],
        "ports": [
            {"name": name, "containerPort": wanted.ports[annotation], "protocol": "TCP"}
            for name, annotation in _PORT_NAMES.items()
        ],
        # Ports are open, whether flags came or not: they never keep an application from starting.
        "startupProbe": {**_asking("/healthz"), "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {**_asking("/readyz"), "periodSeconds": 5},
        "livenessProbe": {**_asking("/healthz"), "periodSeconds": 10, "timeoutSeconds": 3},
        "resources": {part: dict(amounts) for part, amounts in wanted.resources.items()},
        "securityContext": _SECURITY,
        "volumeMounts": _mounts(options),
    }


def volumes(options: Options) -> list[dict[str, Any]]:
    """What the sidecar mounts."""
    token = {"path": "token", "audience": options.proxy_audience, "expirationSeconds": 3600}
    found: list[dict[str, Any]] = [
        {"name": names.TOKEN, "projected": {"sources": [{"serviceAccountToken": token}]}},
        # Twice the most that a source may deliver, with room to replace it.
        {"name": names.STATE, "emptyDir": {"sizeLimit": "256Mi"}},
    ]
    if options.proxy_ca:
        found.append({"name": names.CA, "configMap": {"name": options.proxy_ca, "optional": True}})
    return found


def variables(wanted: Wanted) -> list[dict[str, str]]:
    """What an application reads: OpenFeature Operator's names first and in its order, then those of newer
    providers.
    """
    ports = wanted.ports
    told = {
        "FLAGD_MANAGEMENT_PORT": str(ports[names.MANAGEMENT_PORT]),
        "FLAGD_PORT": str(ports[names.PORT]),
        "FLAGD_RESOLVER": "rpc",
        "FLAGD_HOST": LOOPBACK,
        "FLAGD_SYNC_PORT": str(ports[names.SYNC_PORT]),
        "OFREP_ENDPOINT": f"http://{LOOPBACK}:{ports[names.OFREP_PORT]}",
    }
    return [{"name": name, "value": text} for name, text in told.items()]


def _arguments(wanted: Wanted, selector: str, options: Options) -> list[str]:
    source = {
        "uri": options.proxy_address,
        "provider": "grpc",
        "selector": selector,
        "bearerTokenFile": f"{names.TOKEN_PATH}/token",
    }
    secured = {"tls": True, "certPath": f"{names.CA_PATH}/ca.crt"} if options.proxy_ca else {}
    ports = wanted.ports
    return [
        "start",
        f"--sources={json.dumps([{**source, **secured}], separators=(',', ':'))}",
        f"--state-dir={names.STATE_PATH}",
        # Applications ask over loopback; the kubelet and Prometheus come from outside.
        f"--host={LOOPBACK}",
        "--management-host=0.0.0.0",
        f"--port={ports[names.PORT]}",
        f"--management-port={ports[names.MANAGEMENT_PORT]}",
        f"--sync-port={ports[names.SYNC_PORT]}",
        f"--ofrep-port={ports[names.OFREP_PORT]}",
        "--log-format=json",
        f"--log-level={wanted.log_level}",
    ]


def _mounts(options: Options) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": names.TOKEN, "mountPath": names.TOKEN_PATH, "readOnly": True},
        {"name": names.STATE, "mountPath": names.STATE_PATH},
    ]
    if options.proxy_ca:
        mounts.append({"name": names.CA, "mountPath": names.CA_PATH, "readOnly": True})
    return mounts


def _asking(path: str) -> Mapping[str, Any]:
    return {"httpGet": {"path": path, "port": "flags-mgmt", "scheme": "HTTP"}}
