"""The evaluator's container, and the variables of applications. Pure."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from controller.pods.settings import flag_file as files
from controller.pods.settings import source_settings as source
from controller.pods.settings import well_known
from controller.pods.settings.pod_settings import FOREVER, START, WAIT

if TYPE_CHECKING:
    from controller.pods.settings.pod_settings import PodSettings

LOOPBACK: Final = "127.0.0.1"
"""The address of the sidecar. For `localhost`, some clients try ::1 first and no other."""
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - clients come from outside
_PORT_NAMES: Final = {
    "flags-grpc": well_known.PORT,
    "flags-mgmt": well_known.MANAGEMENT_PORT,
    "flags-sync": well_known.SYNC_PORT,
    "flags-ofrep": well_known.OFREP_PORT,
}
_POD_FIELDS: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "NODE_NAME": "spec.nodeName",
}
_USER: Final = 65532
"""The user that the image itself names."""
_ALIVE: Final = {"path": "/healthz", "port": "flags-mgmt", "scheme": "HTTP"}
_PROBES: Final = {
    "readinessProbe": {"httpGet": {**_ALIVE, "path": "/readyz"}, "periodSeconds": 5},
    "livenessProbe": {"httpGet": _ALIVE, "periodSeconds": 10, "timeoutSeconds": 3},
}
_OPENING_SECONDS: Final = 60
"""Seconds until ports are open, on a busy node."""
SECURITY: Final = {
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


def container(wanted: PodSettings) -> dict[str, Any]:
    """The sidecar."""
    always = {"restartPolicy": "Always"} if wanted.native else {}
    probes = (
        {} if wanted.settings.probes_enabled is False else {"startupProbe": _startup_probe(wanted), **_PROBES}
    )
    return {
        "name": well_known.CONTAINER,
        "image": wanted.image or wanted.options.image,
        **always,
        "args": _arguments(wanted),
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in _POD_FIELDS.items()
        ]
        + [variable for variable, evaluators, _ in source.variables(wanted.settings) if evaluators],
        "ports": [
            {"name": name, "containerPort": wanted.ports[annotation], "protocol": "TCP"}
            for name, annotation in _PORT_NAMES.items()
            if not (wanted.socket_path and annotation == well_known.PORT)
        ],
        **probes,
        "resources": {part: dict(amounts) for part, amounts in wanted.resources.items()},
        "securityContext": SECURITY,
    }


def _startup_probe(wanted: PodSettings) -> dict[str, Any]:
    """The probe that applications wait for."""
    if wanted.missing == START:
        return {"httpGet": _ALIVE, "periodSeconds": 1, "failureThreshold": _OPENING_SECONDS}
    # Forever is eleven days, after which the evaluator's container is restarted and waits again.
    seconds = 1_000_000 if wanted.missing == FOREVER else math.ceil(wanted.start_deadline)
    return {
        "httpGet": {**_ALIVE, "path": "/startz"},
        "periodSeconds": 1,
        "failureThreshold": seconds + _OPENING_SECONDS,
    }


def variables(wanted: PodSettings) -> list[dict[str, Any]]:
    """Variables: of FeatureFlagSources, then by OpenFeature Operator's names, then of newer providers."""
    ports, settings = wanted.ports, wanted.settings
    values = {
        "MANAGEMENT_PORT": str(ports[well_known.MANAGEMENT_PORT]),
        "PORT": str(ports[well_known.PORT]),
        "RESOLVER": "rpc",
        **({"SOCKET_PATH": wanted.socket_path} if wanted.socket_path else {}),
        "HOST": LOOPBACK,
        "SYNC_PORT": str(ports[well_known.SYNC_PORT]),
    }
    ours = {source.add_prefix(settings, name): text for name, text in values.items()}
    ours["OFREP_ENDPOINT"] = f"http://{LOOPBACK}:{ports[well_known.OFREP_PORT]}"
    theirs = [variable for variable, _, applications in source.variables(settings) if applications]
    taken = {variable["name"] for variable in theirs}
    return [*theirs, *({"name": name, "value": text} for name, text in ours.items() if name not in taken)]


def _arguments(wanted: PodSettings) -> list[str]:
    options = wanted.options
    proxied: dict[str, Any] = {"uri": options.proxy_address, "provider": "grpc"}
    token = {"bearerTokenFile": f"{well_known.TOKEN_PATH}/token"}
    secured = {"tls": True, "certPath": f"{well_known.CA_PATH}/ca.crt"} if options.proxy_ca else {}
    sources = [
        entry if "provider" in entry else {**proxied, **entry, **token, **secured} for entry in wanted.follows
    ]
    # What the proxy learns of each file, in their order; nothing where one is read twice.
    read = sum(entry.get("provider") == files.PROVIDER for entry in wanted.follows)
    receipts = [{"selector": f"{file.namespace}/{file.name}"} for file in wanted.files]
    receipts = receipts if read == len(wanted.files) else []
    ports = wanted.ports
    listening = [f"--port={ports[well_known.PORT]}"]
    if wanted.socket_path:
        # Only containers that mount the folder reach it, whatever their user.
        listening = [f"--socket-path={wanted.socket_path}", "--socket-mode=0666"]
    return [
        "start",
        source.escape(f"--sources={_json(sources)}"),
        *(f"--receipts-to={_json({**proxied, **receipt, **token, **secured})}" for receipt in receipts),
        f"--state-dir={well_known.STATE_PATH}",
        # Applications ask over loopback; the kubelet and Prometheus come from outside.
        f"--host={EVERYWHERE if wanted.everywhere else LOOPBACK}",
        f"--management-host={EVERYWHERE}",
        *listening,
        f"--management-port={ports[well_known.MANAGEMENT_PORT]}",
        f"--sync-port={ports[well_known.SYNC_PORT]}",
        f"--ofrep-port={ports[well_known.OFREP_PORT]}",
        f"--log-format={wanted.log_format}",
        f"--log-level={wanted.log_level}",
        *([f"--start-deadline={wanted.start_deadline:g}s"] if wanted.missing == WAIT else []),
        *source.arguments(wanted.settings),
    ]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
