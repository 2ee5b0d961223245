"""OpenFeature Operator's Helm values (chart 0.9) as our options. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.migration.finding import Fate, leaves
from controller.pods.injection.well_known import OPERATORS

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
        Fate.CHANGED, "spec.replicas in deploy/proxy.yaml, or controller --proxy-replicas for some on demand",
    ),
    "flagdProxyConfiguration.image": (Fate.IGNORED, "our proxy takes the place of flagd-proxy"),
    "flagdProxyConfiguration.debugLogging": (Fate.CHANGED, "proxy --verbose in deploy/proxy.yaml"),
    "mutatingWebhook.failurePolicy": (Fate.CHANGED, "failurePolicy in deploy/admission.yaml; Fail"),
    "mutatingWebhook.objectSelector": (Fate.CHANGED, "objectSelector in deploy/admission.yaml"),
    "managerConfig.flagsValidationEnabled": (
        Fate.CHANGED, "delete the ValidatingWebhookConfiguration flagstaff-validation for false",
    ),
    "controllerManager.replicas": (Fate.CHANGED, "spec.replicas in deploy/controller.yaml"),
    "controllerManager.manager": (Fate.CHANGED, "the container in deploy/controller.yaml, with our image"),
    "imagePullSecrets": (Fate.CHANGED, "the manifests in deploy/"),
    "labels": (Fate.CHANGED, "the manifests in deploy/"),
    "annotations": (Fate.CHANGED, "the manifests in deploy/"),
    "namespace": (Fate.CHANGED, "the manifests in deploy/"),
    "defaultNamespace": (Fate.CHANGED, "the manifests in deploy/"),
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


def options(values: Mapping[str, Any]) -> Iterator[Value]:
    """Return the outcome of each given value, in the order of the file."""
    image = _at(values, _IMAGE)
    for path in leaves(dict(values), ()):
        name = ".".join(map(str, path))
        if name.startswith(_IMAGE) and isinstance(image, dict):
            if path[-1] == "repository" or "repository" not in image:
                yield _image(name, image)
        elif name in _OPTIONS:
            yield Value(name, Fate.CHANGED, "", f"{_OPTIONS[name]}={_at(values, name)}")
        else:
            known = next((key for key in _TABLE if name == key or name.startswith(f"{key}.")), "")
            fate, message = _TABLE.get(known, (Fate.IGNORED, "Flagstaff has no such setting"))
            yield Value(name, fate, message)


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
