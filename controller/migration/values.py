"""OpenFeature Operator's Helm values (chart 0.9) as our options. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.migration.finding import Fate, leaves
from controller.pods.installation import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Value:
    """What becomes of one value."""

    path: str
    fate: Fate
    message: str
    option: str = ""
    """An option of `flagstaff controller` or `flagstaff proxy`, as PROCESS --OPTION=TEXT."""
    stock: bool = False
    """Whether it is the chart's own default, for which ours stands in."""


_SOURCE: Final = "in FeatureFlagSources: "
_DEAD: Final = "; the operator's own definition of the kind fills this in, so that the value did nothing"
_TABLE: Final[Mapping[str, tuple[Fate, str]]] = {
    "sidecarConfiguration.port": (Fate.CHANGED, f"{_SOURCE}port{_DEAD}"),
    "sidecarConfiguration.managementPort": (Fate.CHANGED, f"{_SOURCE}managementPort{_DEAD}"),
    "sidecarConfiguration.envVarPrefix": (Fate.CHANGED, f"{_SOURCE}envVarPrefix{_DEAD}"),
    "sidecarConfiguration.logFormat": (Fate.CHANGED, f"{_SOURCE}logFormat{_DEAD}"),
    "sidecarConfiguration.probesEnabled": (Fate.CHANGED, f"{_SOURCE}probesEnabled{_DEAD}"),
    "sidecarConfiguration.socketPath": (Fate.CHANGED, f"{_SOURCE}socketPath"),
    "sidecarConfiguration.defaultSyncProvider": (Fate.CHANGED, f"{_SOURCE}defaultSyncProvider"),
    "sidecarConfiguration.resources": (Fate.CHANGED, f"{_SOURCE}resources"),
    "sidecarConfiguration.debugLogging": (Fate.CHANGED, f"{_SOURCE}debugLogging; never passed on"),
    "sidecarConfiguration.otelCollectorUri": (
        Fate.IGNORED, "set OTEL_EXPORTER_OTLP_ENDPOINT in envVars; never passed on",
    ),
    "sidecarConfiguration.providerArgs": (Fate.IGNORED, "ends flagd since 0.8; give each source its fields"),
    "sidecarConfiguration.evaluator": (Fate.IGNORED, "there is one, for JSON and YAML"),
    "flagdProxyConfiguration.replicaCount": (
        Fate.CHANGED, "spec.replicas of flagstaff-proxy, or controller --proxy-replicas for some on demand",
    ),
    "flagdProxyConfiguration.image": (Fate.IGNORED, "our proxy takes the place of flagd-proxy"),
    "flagdProxyConfiguration.debugLogging": (Fate.CHANGED, "proxy --verbose in its Deployment"),
    "mutatingWebhook.failurePolicy": (Fate.CHANGED, "failurePolicy of flagstaff-injection; Fail"),
    "mutatingWebhook.objectSelector": (Fate.CHANGED, "objectSelector of flagstaff-injection"),
    "managerConfig.flagsValidationEnabled": (
        Fate.CHANGED, "delete the ValidatingWebhookConfiguration flagstaff-validation for false",
    ),
    "controllerManager.replicas": (Fate.CHANGED, "spec.replicas of flagstaff-controller"),
    "controllerManager.manager": (Fate.CHANGED, "the container of flagstaff-controller, with our image"),
    "imagePullSecrets": (Fate.CHANGED, "a kustomization over deploy/, or values of the chart"),
    "labels": (Fate.CHANGED, "a kustomization over deploy/, or values of the chart"),
    "annotations": (Fate.CHANGED, "a kustomization over deploy/, or values of the chart"),
    "namespace": (Fate.CHANGED, "a kustomization over deploy/, or values of the chart"),
    "defaultNamespace": (Fate.CHANGED, "a kustomization over deploy/, or values of the chart"),
    "inProcessConfiguration": (Fate.CHANGED, "in InProcessConfigurations: the field of this name"),
    "flagdConfiguration": (Fate.IGNORED, "a Flagd has the image and the options of injected evaluators"),
}  # fmt: skip
_OPTIONS: Final = {
    "flagdProxyConfiguration.port": "proxy --sync-port",
    "flagdProxyConfiguration.managementPort": "proxy --management-port",
    "managerConfig.controllerManagerConfigYaml.metrics.bindPort": "controller --management-port",
    "managerConfig.controllerManagerConfigYaml.webhook.port": "controller --admission-port",
}
_IMAGE: Final = "sidecarConfiguration.image"
_STOCK: Final[Mapping[str, Any]] = {
    "defaultNamespace": "open-feature-operator-system",
    "imagePullSecrets": [],
    "sidecarConfiguration": {
        "port": 8013, "managementPort": 8014, "socketPath": "", "providerArgs": "", "envVarPrefix": "FLAGD",
        "defaultSyncProvider": "kubernetes", "evaluator": "json", "logFormat": "json", "probesEnabled": True,
        "debugLogging": False, "otelCollectorUri": "",
        "resources": {
            "limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "200m", "memory": "32Mi"},
        },
    },
    "inProcessConfiguration": {
        "port": 8015, "host": "localhost", "socketPath": "", "tls": "false", "offlineFlagSourcePath": "",
        "selector": "", "envVarPrefix": "FLAGD", "cache": {"type": "lru", "size": 1000},
    },
    "flagdProxyConfiguration": {
        "port": 8015, "managementPort": 8016, "debugLogging": False, "replicaCount": 1,
        "image": {"repository": "ghcr.io/open-feature/flagd-proxy"},
    },
    "flagdConfiguration": {
        "port": 8013, "ofrepPort": 8016, "syncPort": 8015, "managementPort": 8014, "debugLogging": False,
        "image": {"repository": "ghcr.io/open-feature/flagd"},
    },
    "controllerManager": {
        "kubeRbacProxy": {
            "image": {"repository": "gcr.io/kubebuilder/kube-rbac-proxy"},
            "resources": {
                "limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "5m", "memory": "64Mi"},
            },
        },
        "manager": {
            "image": {"repository": "ghcr.io/open-feature/open-feature-operator"},
            "resources": {
                "limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "10m", "memory": "64Mi"},
            },
            "hostNetwork": False, "dnsPolicy": "ClusterFirst",
        },
        "replicas": 1,
    },
    "managerConfig": {
        "flagsValidatonEnabled": "true",
        "controllerManagerConfigYaml": {
            "health": {"healthProbeBindAddress": ":8081"}, "metrics": {"bindAddress": "127.0.0.1:8080"},
            "webhook": {"port": 9443},
        },
    },
}  # fmt: skip
"""The values of the chart itself. Each release has its own tags of images, which are not compared."""


def options(values: Mapping[str, Any]) -> Iterator[Value]:
    """Return the outcome of each given value, in the order of the file."""
    image = _at(values, _IMAGE)
    for path in leaves(dict(values), ()):
        name = ".".join(map(str, path))
        if _is_stock(values, name):
            yield Value(name, Fate.KEPT, "the chart's default; Flagstaff's own takes its place", stock=True)
        elif name.startswith(_IMAGE) and isinstance(image, dict):
            if path[-1] == "repository" or "repository" not in image:
                yield _image(name, image)
        elif name in _OPTIONS:
            yield Value(name, Fate.CHANGED, "", f"{_OPTIONS[name]}={_at(values, name)}")
        else:
            known = next((key for key in _TABLE if name == key or name.startswith(f"{key}.")), "")
            fate, message = _TABLE.get(known, (Fate.IGNORED, "Flagstaff has no such setting"))
            yield Value(name, fate, message)


def _is_stock(values: Mapping[str, Any], name: str) -> bool:
    if name.startswith(f"{_IMAGE}."):
        return False  # how to keep stock flagd is always said
    if name.endswith(".image.tag"):
        repository = name.removesuffix("tag") + "repository"
        return _at(values, repository) in {None, _at(_STOCK, repository)}
    stock = _at(_STOCK, name)
    return stock is not None and _at(values, name) == stock


def _image(name: str, image: Mapping[str, Any]) -> Value:
    repository = image.get("repository") or "ghcr.io/open-feature/flagd"
    tag = image.get("tag") or "v0.15.4"
    option = f"controller --compat={OPERATORS} --evaluator-image={repository}:{tag}"
    return Value(
        name, Fate.CHANGED, "only to keep stock flagd; without these options the image is ours", option
    )


def _at(values: Any, name: str) -> Any:
    for step in name.split("."):
        values = values.get(step) if isinstance(values, dict) else None
    return values
