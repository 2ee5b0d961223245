"""Our definitions of OpenFeature Operator's kinds take all that its own (v0.9.2; FeatureFlagConfiguration:
v0.2.36) take, and none of their fields is narrower.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from controller.api.featureflagsource import FeatureFlagSourceSpec
from controller.api.fields import OPEN
from controller.api.flagd import FlagdSpec
from controller.api.inprocessconfiguration import InProcessConfigurationSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.fields import Model

CRDS: Final = Path(__file__).parents[2] / "crds"
TEXT: Final[dict[str, Any]] = {"type": "string"}
FLAG: Final[dict[str, Any]] = {"type": "boolean"}
NUMBER: Final[dict[str, Any]] = {"type": "integer"}
INT32: Final[dict[str, Any]] = {"type": "integer", "format": "int32"}
ANY: Final[dict[str, Any]] = {"type": "object", OPEN: True}
OLD: Final[dict[str, Any]] = {**ANY, "nullable": True}
TEXTS: Final[dict[str, Any]] = {"type": "array", "items": TEXT}
ANYS: Final[dict[str, Any]] = {"type": "array", "items": ANY}
BY_NAME: Final[dict[str, Any]] = {"type": "object", "additionalProperties": TEXT}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


SOURCE: Final = fields(
    "source", source=TEXT, provider=TEXT, httpSyncBearerToken=TEXT, tls=FLAG, certPath=TEXT, providerID=TEXT,
    selector=TEXT, interval=INT32,
)  # fmt: skip
INGRESS: Final = fields(
    enabled=FLAG, annotations=BY_NAME, hosts=TEXTS, tls=ANYS, ingressClassName=TEXT, pathType=TEXT,
    flagdPath=TEXT, ofrepPath=TEXT, syncPath=TEXT,
)  # fmt: skip
ROUTES: Final = fields("parentRefs", enabled=FLAG, annotations=BY_NAME, hosts=TEXTS, parentRefs=ANYS)
STATE: Final = {**TEXT, "enum": ["ENABLED", "DISABLED"]}
DEFINITION: Final = fields(
    "defaultVariant", "state", "variants", state=STATE, variants=ANY, defaultVariant=TEXT, targeting=ANY,
    metadata=ANY,
)  # fmt: skip
FLAGS: Final = {"type": "object", "additionalProperties": DEFINITION}
SPECS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("featureflags", "v1beta1"): fields(
        flagSpec=fields("flags", flags=FLAGS, metadata=ANY, **{"$evaluators": ANY})
    ),
    ("featureflagsources", "v1beta1"): fields(
        "sources", sources={"type": "array", "items": SOURCE, "minItems": 1}, managementPort=INT32,
        port=INT32, ofrepPort=INT32, socketPath=TEXT, evaluator=TEXT, logFormat=TEXT, envVars=ANYS,
        envVarPrefix=TEXT, syncProviderArgs=TEXTS, defaultSyncProvider=TEXT, rolloutOnChange=FLAG,
        probesEnabled=FLAG, debugLogging=FLAG, otelCollectorUri=TEXT, resources=ANY, contextValues=BY_NAME,
        headerToContextMappings=BY_NAME, cors=TEXTS,
    ),
    ("flagds", "v1beta1"): fields(
        "featureFlagSource", replicas=INT32, serviceType=TEXT, serviceAccountName=TEXT,
        featureFlagSource=TEXT, ingress=INGRESS, gatewayApiRoutes=ROUTES,
    ),
    ("inprocessconfigurations", "v1beta1"): fields(
        port=INT32, socketPath=TEXT, host=TEXT, tls=FLAG, offlineFlagSourcePath=TEXT, selector=TEXT,
        cache={**TEXT, "enum": ["lru", "disabled"]}, cacheMaxSize=NUMBER, envVars=ANYS, envVarPrefix=TEXT,
    ),
    ("featureflagconfigurations", "v1alpha1"): fields(
        featureFlagSpec=TEXT, serviceProvider=OLD, syncProvider=OLD, flagDSpec=OLD,
    ),
    ("featureflagconfigurations", "v1alpha2"): fields(
        featureFlagSpec=fields("flags", flags=FLAGS, **{"$evaluators": ANY}), serviceProvider=OLD,
        syncProvider=OLD, flagDSpec=OLD, resources=OLD,
    ),
}  # fmt: skip
BOUNDS: Final = {
    "enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "maxProperties", "oneOf", "anyOf", "allOf", "not", "x-kubernetes-validations",
    "x-kubernetes-list-type",
}  # fmt: skip


def schema(plural: str, version: str) -> dict[str, Any]:
    definition = yaml.load((CRDS / f"{plural}.yaml").read_bytes(), yaml.CSafeLoader)
    versions = {each["name"]: each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"]}
    whole: dict[str, Any] = versions[version]
    return whole


def narrower(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[str]:
    """Where ours refuses, or drops, what theirs takes."""
    if ours.get(OPEN) and "type" not in ours:
        return
    if ours["type"] != theirs["type"]:
        yield f"{path}: {ours['type']}, not {theirs['type']}"
    for bound in sorted(BOUNDS & ours.keys()):
        if ours[bound] != theirs.get(bound):
            yield f"{path}: {bound} {ours[bound]}"
    if theirs.get("nullable") and not ours.get("nullable"):
        yield f"{path}: not nullable"
    yield from (
        f"{path}.{name}: required" for name in {*ours.get("required", ())} - {*theirs.get("required", ())}
    )
    for inner in ("items", "additionalProperties"):
        if inner in theirs and not (ours.get(OPEN) and inner not in ours):
            yield from narrower(ours[inner], theirs[inner], f"{path}[]")
    for name, field in theirs.get("properties", {}).items():
        if name in ours.get("properties", {}):
            yield from narrower(ours["properties"][name], field, f"{path}.{name}")
        elif not ours.get(OPEN):
            yield f"{path}.{name}: missing"


@pytest.mark.parametrize(("plural", "version"), SPECS)
def test_no_field_of_the_operators_kinds_is_narrower_here(plural: str, version: str) -> None:
    whole = schema(plural, version)
    assert "spec" not in whole.get("required", ()) or "required" in SPECS[plural, version]
    assert list(narrower(whole["properties"]["spec"], SPECS[plural, version], "spec")) == []


MODELS: Final[list[tuple[type[Model], dict[str, Any]]]] = [
    (FlagdSpec, {"featureFlagSource": "ui", "ingress": {"enabled": True, "hosts": ["localhost", ""]}}),
    (FlagdSpec, {"featureFlagSource": "ui", "ingress": {"enabled": False}}),
    (FlagdSpec, {"featureFlagSource": "ui", "gatewayApiRoutes": {"hosts": [""], "parentRefs": []}}),
    (
        FeatureFlagSourceSpec,
        {"sources": [{"source": "x"}], "resources": {"claims": [{"name": "x"}], "limits": {"cpu": 1}}},
    ),
    (InProcessConfigurationSpec, {}),
]


@pytest.mark.parametrize(("model", "spec"), MODELS)
def test_what_the_operator_can_use_can_be_used_here(model: type[Model], spec: dict[str, Any]) -> None:
    model.model_validate(spec)
