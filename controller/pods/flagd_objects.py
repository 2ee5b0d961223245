"""The manifests of a Flagd, with OpenFeature Operator's names, labels and ports, and the hosts that it may
expose. Pure.

Whoever may create a Flagd has objects made that they may not be allowed to make: an Ingress for somebody
else's host, or one with annotations by which some ingress controllers run code.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagd
from controller.api.kinds import DEPLOYMENT, FLAGD, HTTP_ROUTE, INGRESS, SERVICE
from controller.pods import installation
from controller.pods.evaluator_container import evaluator, marks, volumes
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.api.flagd import FlagdSpec, GatewayApiRoutesSpec, IngressSpec
    from controller.api.kind import ResourceType
    from controller.api.meta import Resource
    from controller.pods.pod_settings import PodSettings


ALL: Final = ("*",)


@dataclass(frozen=True, slots=True)
class ExposureRules:
    """Globs, in which `*` stands for dots and slashes, too."""

    hosts: tuple[str, ...] = ALL
    annotations: tuple[str, ...] = ALL
    """Of names of annotations."""

    def check(self, spec: FlagdSpec) -> None:
        """Raise Stalled for what is not allowed."""
        for host in _hosts(spec):
            # No host is any host, which `*` alone allows.
            if not _matches(host.lower() or "any host", self.hosts):
                raise Stalled(
                    "HostDenied",
                    f"host {host[:253] or '(any)'} is none of --flagd-hosts of the controller: "
                    f"{', '.join(self.hosts) or 'none is allowed'}",
                )
        for part in (spec.ingress, spec.gateway_api_routes):
            for name in sorted((part.annotations if part and part.enabled else None) or ()):
                if not _matches(name, self.annotations):
                    raise Stalled(
                        "AnnotationDenied",
                        f"annotation {name[:317]} is none of --flagd-annotations of the controller: "
                        f"{', '.join(self.annotations) or 'none is allowed'}",
                    )


def _hosts(spec: FlagdSpec) -> Iterator[str]:
    if spec.ingress is not None and spec.ingress.enabled:
        yield from spec.ingress.hosts or ("",)
        for entry in spec.ingress.tls:
            given = entry.get("hosts")
            yield from (str(host) for host in (given if isinstance(given, list) else ()))
    if spec.gateway_api_routes is not None and spec.gateway_api_routes.enabled:
        yield from spec.gateway_api_routes.hosts or ("",)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OURS: Final = "flagstaff"
APP: Final = "app"
"""The label that the Deployment and the Service select pods by, as the operator's do."""
CONTAINER: Final = installation.OPERATORS_CONTAINER
EVALUATION, OFREP, SYNC, METRICS = 8013, 8016, 8015, 8014
"""The Service's ports, whatever the evaluator's are."""
_PORTS: Final = (
    ("flagd", EVALUATION, installation.PORT, "grpc"),
    ("ofrep", OFREP, installation.OFREP_PORT, "http"),
    ("sync", SYNC, installation.SYNC_PORT, "grpc"),
    ("metrics", METRICS, installation.MANAGEMENT_PORT, "http"),
)
_FLAGD_PATH: Final = "/flagd.evaluation.v1.Service"
_OFREP_PATH: Final = "/ofrep"
_SYNC_PATH: Final = "/flagd.sync.v1.Service"


def manifests(resource: Resource, spec: FlagdSpec, wanted: PodSettings) -> Iterator[dict[str, Any]]:
    """Return the manifests with their owner, in the order of application."""
    alone = replace(wanted, native=False, everywhere=True, socket_path="")
    yield _owned_object(DEPLOYMENT, resource, _deployment(resource.name, spec, alone))
    yield _owned_object(SERVICE, resource, _service(resource.name, spec, alone))
    if spec.ingress is not None and spec.ingress.enabled:
        yield _owned_object(
            INGRESS, resource, _ingress(resource.name, spec.ingress), spec.ingress.annotations
        )
    routes = spec.gateway_api_routes
    if routes is not None and routes.enabled:
        yield _owned_object(HTTP_ROUTE, resource, _route(resource, routes), routes.annotations)


def labels(name: str) -> dict[str, str]:
    """The labels of all objects that are made for the Flagd of this name."""
    return {APP: name, "app.kubernetes.io/name": name, MANAGED_BY: OURS}


def is_ours(body: Mapping[str, Any] | None) -> bool:
    """Return whether an object exists and has our label."""
    return body is not None and (body["metadata"].get("labels") or {}).get(MANAGED_BY) == OURS


def _owned_object(
    type_: ResourceType,
    owner: Resource,
    spec: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    reference = {"apiVersion": FLAGD.api_version, "kind": flagd.KIND, "name": owner.name, "uid": owner.uid}
    return {
        "apiVersion": type_.api_version,
        "kind": type_.kind,
        "metadata": {
            "name": owner.name,
            "namespace": owner.namespace,
            "labels": labels(owner.name),
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": dict(spec),
    }


def _deployment(name: str, spec: FlagdSpec, wanted: PodSettings) -> dict[str, Any]:
    container = {**evaluator(wanted), "name": CONTAINER}
    if wanted.options.compat:
        container["ports"] = [
            {
                "name": "management" if port == METRICS else port_name,
                "containerPort": wanted.ports[annotation],
            }
            for port_name, port, annotation, _ in (_PORTS[-1], *_PORTS[:-1])
        ]
    metadata: dict[str, Any] = {"labels": labels(name)}
    for part, key, value in marks(wanted, spec.service_account_name):
        metadata.setdefault(part, {})[key] = value
    account = {"serviceAccountName": spec.service_account_name} if spec.service_account_name else {}
    return {
        **({} if spec.replicas is None else {"replicas": spec.replicas}),
        "selector": {"matchLabels": {APP: name}},
        "template": {
            "metadata": metadata,
            "spec": {
                **account,
                # What it shows to the proxy is a volume of its own; the API server is none of its business.
                **({} if wanted.direct else {"automountServiceAccountToken": False}),
                "containers": [container],
                "volumes": volumes(wanted),
            },
        },
    }


def _service(name: str, spec: FlagdSpec, wanted: PodSettings) -> dict[str, Any]:
    return {
        "type": spec.service_type or "ClusterIP",
        "selector": {APP: name},
        "ports": [
            {"name": port_name, "port": port, "targetPort": wanted.ports[annotation], "appProtocol": protocol}
            for port_name, port, annotation, protocol in _PORTS
        ],
    }


def _ingress(name: str, asked: IngressSpec) -> dict[str, Any]:
    paths = (
        (asked.flagd_path or _FLAGD_PATH, EVALUATION),
        (asked.ofrep_path or _OFREP_PATH, OFREP),
        (asked.sync_path or _SYNC_PATH, SYNC),
    )
    http = {
        "paths": [
            {
                "path": path,
                "pathType": asked.path_type or "Prefix",
                "backend": {"service": {"name": name, "port": {"number": port}}},
            }
            for path, port in paths
        ]
    }
    return {
        **({"ingressClassName": asked.ingress_class_name} if asked.ingress_class_name else {}),
        **({"tls": list(asked.tls)} if asked.tls else {}),
        # A rule without a host is for any.
        "rules": [{**({"host": host} if host else {}), "http": http} for host in asked.hosts or ("",)],
    }


def _route(resource: Resource, asked: GatewayApiRoutesSpec) -> dict[str, Any]:
    return {
        "parentRefs": list(asked.parent_refs),
        # Without names it is for any, which an HTTPRoute cannot have among others.
        **({"hostnames": list(asked.hosts)} if asked.hosts and all(asked.hosts) else {}),
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": path}}],
                "backendRefs": [
                    {"kind": "Service", "name": resource.name, "namespace": resource.namespace, "port": port}
                ],
            }
            for path, port in ((_OFREP_PATH, OFREP), (_FLAGD_PATH, EVALUATION), (_SYNC_PATH, SYNC))
        ],
    }
