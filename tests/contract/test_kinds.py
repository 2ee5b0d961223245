"""What the API server takes and what our models read are the same: field by field, over every version of
every kind.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import pytest
import yaml
from pydantic import TypeAdapter

from controller.api import configuration, featureflagsource, flagd, grant, inprocess, kinds, receipt, shard
from controller.api.configuration import ConfigurationSpec
from controller.api.featureflagsource import FeatureFlagSourceSpec
from controller.api.flagset import FlagSetSpec
from controller.api.flagsource import FlagSourceSpec
from controller.api.inprocess import InProcessConfigurationSpec
from controller.api.objects.fields import Model, read
from controller.api.receipt import FlagReceiptSpec, FlagReceiptStatus
from controller.api.shard import FlagShardSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
SPECS: Final[dict[str, type[Model]]] = {
    shard.KIND: FlagShardSpec,
    configuration.KIND: ConfigurationSpec,
    configuration.FLAG_KIND: ConfigurationSpec,
    receipt.KIND: FlagReceiptSpec,
    featureflagsource.KIND: FeatureFlagSourceSpec,
    inprocess.KIND: InProcessConfigurationSpec,
}
"""Of kinds whose specs are written by programs, or judged elsewhere."""
STATUSES: Final[dict[str, type[Model] | None]] = {
    grant.KIND: None, shard.KIND: None, receipt.KIND: FlagReceiptStatus,
}  # fmt: skip
"""Of kinds without conditions."""
MODELS: Final[dict[str, tuple[type[Model], type[Model] | None]]] = {
    each.kind: (each.spec or SPECS[each.kind], STATUSES.get(each.kind, each.status))
    for each in kinds.WATCHED
    if each not in kinds.FLUX_SOURCES
}
PASSED_THROUGH: Final = {"serviceProvider", "syncProvider", "flagDSpec", "resources"}
"""Kept for the operator whose manifests have them, and read by nobody here."""
ELSEWHERE: Final = {configuration.FLAG_KIND: {"shards", "featureFlagSpec", "revision"}}
"""FeatureFlag is read as a FeatureFlagConfiguration is, and has fewer fields."""
BOUNDS: Final = ("pattern", "minLength", "maxLength", "minItems", "maxItems", "enum")
CRDS: Final = {
    crd["spec"]["names"]["kind"]: crd
    for crd in (
        yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted((ROOT / "crds").glob("*.yaml"))
    )
}
VERSIONS: Final = [
    (kind, version["name"]) for kind, crd in CRDS.items() for version in crd["spec"]["versions"]
]


def schema(kind: str, version: str) -> dict[str, Any]:
    versions = {each["name"]: each for each in CRDS[kind]["spec"]["versions"]}
    found: dict[str, Any] = versions[version]["schema"]["openAPIV3Schema"]
    return found


def resolved(part: Any, whole: Any) -> Any:
    """A part of a model's schema without references, and without the null that stands for «not given»."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return resolved(whole["$defs"][name], whole)
    options = [each for each in part.get("anyOf", ()) if each != {"type": "null"}]
    if len(options) == 1:
        return resolved(options[0], whole)
    return {**part, "enum": [part["const"]]} if "const" in part else part


def differences(crd: Any, model: Any, whole: Any, path: str) -> Iterator[str]:
    """Where the two say otherwise, or the model refuses what the API server takes."""
    model = resolved(model, whole)
    if model.get("type") == "number" and crd.get("type") == "string":
        return  # a duration: text to the one, seconds to the other
    for bound in BOUNDS:
        if bound in model and model[bound] != crd.get(bound):
            yield f"{path}: {bound} is {model[bound]!r} for us, {crd.get(bound)!r} in the CRD"
    if "items" in model and "items" in crd:
        yield from differences(crd["items"], model["items"], whole, f"{path}[]")
    if "properties" not in model or "properties" not in crd:
        return
    if set(model.get("required", ())) != set(crd.get("required", ())):
        yield f"{path}: required {model.get('required')} for us, {crd.get('required')} in the CRD"
    for name, part in crd["properties"].items():
        if name in model["properties"]:
            yield from differences(part, model["properties"][name], whole, f"{path}.{name}")


def fields(part: Any, whole: Any) -> Iterator[tuple[str, ...]]:
    """Every field's path, as far as it is described."""
    part = resolved(part, whole)
    if "items" in part:
        yield from fields(part["items"], whole)
    for name, inner in part.get("properties", {}).items():
        yield (name,)
        yield from ((name, *path) for path in fields(inner, whole))


UNCOUNTED: Final = {configuration.FLAG_KIND: {"total", "delivered", "servedWithin", "laggards"}}
"""Receipts are of FeatureFlagConfigurations."""
PLAIN: Final = {receipt.KIND}
"""Kinds that are no user's: without conditions, and in nobody's `kubectl get flagstaff`."""
OPEN: Final = {("conditions",), ("flagSpec",), ("featureFlagSpec",)}
"""What the models leave to other readers."""


def described(part: Any, whole: Any) -> set[tuple[str, ...]]:
    return {path for path in fields(part, whole) if path[:1] not in OPEN or len(path) == 1}


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_crd_and_model_have_the_same_fields(kind: str, version: str) -> None:
    left_out = {"spec": ELSEWHERE.get(kind, set()), "status": UNCOUNTED.get(kind, set())}
    for model, name in zip(MODELS[kind], left_out, strict=True):
        if model is not None:
            whole = model.model_json_schema(by_alias=True)
            crd = schema(kind, version)["properties"][name]
            ours = {path for path in described(whole, whole) if path[0] not in left_out[name]}
            passed = PASSED_THROUGH if kind == configuration.KIND else set()
            assert ours == {path for path in described(crd, crd) if path[0] not in passed}


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_crd_and_model_want_the_same_of_a_field(kind: str, version: str) -> None:
    model = MODELS[kind][0]
    whole = model.model_json_schema(by_alias=True)
    found = differences(schema(kind, version)["properties"]["spec"], whole, whole, "spec")
    assert list(found) == []


def undescribed(part: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, inner in (part.get("properties") or {}).items():
        here = (*path, name)
        if here not in {("apiVersion",), ("kind",), ("metadata",)} and not inner.get("description"):
            yield ".".join(here)
        yield from undescribed(inner, here)
    for within in ("items", "additionalProperties"):
        if isinstance(part.get(within), dict):
            yield from undescribed(part[within], path)


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_kubectl_explain_describes_every_field(kind: str, version: str) -> None:
    assert list(undescribed(schema(kind, version))) == []


def defaults(crd: Any, model: type[Model], path: str) -> Iterator[tuple[str, Any, Any]]:
    for field in model.model_fields.values():
        part = crd["properties"].get(field.alias, {})
        if "default" in part:
            adapter: TypeAdapter[Any] = TypeAdapter(field.rebuild_annotation())
            yield f"{path}.{field.alias}", adapter.validate_python(part["default"]), field.default
        elif field.default not in (None, ()) and not field.is_required() and part:
            inner = isinstance(field.default, Model)
            yield f"{path}.{field.alias}", None if not inner else field.default, field.default
        inner_model = field.annotation
        if isinstance(inner_model, type) and issubclass(inner_model, Model):
            yield from defaults(part, inner_model, f"{path}.{field.alias}")


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_crd_and_model_have_the_same_defaults(kind: str, version: str) -> None:
    spec = schema(kind, version)["properties"]["spec"]
    for path, theirs, ours in defaults(spec, MODELS[kind][0], "spec"):
        assert theirs == ours, path


def filled_in(part: Any, path: str = "spec") -> Iterator[str]:
    """Where the API server fills in a field that nobody gave."""
    if "default" in part:
        yield path
    for name, inner in part.get("properties", {}).items():
        yield from filled_in(inner, f"{path}.{name}")
    if isinstance(part.get("items"), dict):
        yield from filled_in(part["items"], f"{path}[]")


@pytest.mark.parametrize("kind", [featureflagsource.KIND, inprocess.KIND])
def test_what_is_merged_has_no_defaults(kind: str) -> None:
    """OpenFeature Operator's definitions fill in ports and more, so that each later FeatureFlagSource of a
    pod reset what an earlier one said, and the installation's values meant nothing.
    """
    assert [*filled_in(schema(kind, "v1beta1")["properties"]["spec"])] == []


@pytest.mark.parametrize(
    "kind", [featureflagsource.KIND, inprocess.KIND, flagd.KIND, configuration.FLAG_KIND]
)
def test_the_operators_kinds_say_how_they_are(kind: str) -> None:
    """Under OpenFeature Operator none of them had a condition or a column, and `kubectl get` said names."""
    (version,) = CRDS[kind]["spec"]["versions"]
    assert "status" in version["subresources"]
    assert "conditions" in schema(kind, "v1beta1")["properties"]["status"]["properties"]
    assert version["additionalPrinterColumns"][0]["name"] == "Ready"


@pytest.mark.parametrize("kind", [featureflagsource.KIND, inprocess.KIND, flagd.KIND])
def test_fields_of_older_versions_of_the_operator_are_dropped_and_not_refused(kind: str) -> None:
    """Old manifests still have `image`, `tag` and `metricsPort`."""
    assert schema(kind, "v1beta1")["properties"]["spec"].get("additionalProperties") is None


def test_the_webhook_is_asked_about_new_pods_that_ask_alone() -> None:
    """OpenFeature Operator's was asked about updates as well, and added its variables again: labels,
    finalizers and the deletion of an injected pod were refused. It was asked about every pod of the cluster,
    and about dry runs, at which it wrote ConfigMaps.
    """
    documents = yaml.load_all(
        (ROOT / "deploy" / "admission.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
    )
    found = next(each for each in documents if each["kind"] == "MutatingWebhookConfiguration")
    (webhook,) = found["webhooks"]
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert "openfeature.dev/enabled" in webhook["matchConditions"][0]["expression"]
    assert (webhook["sideEffects"], webhook["failurePolicy"]) == ("None", "Fail")


def test_the_durations_that_the_api_server_takes_are_those_that_we_read() -> None:
    for spec, name in ((FlagSourceSpec, "interval"), (FlagSourceSpec, "timeout"), (FlagSetSpec, "interval")):
        kind = "FlagSource" if spec is FlagSourceSpec else "FlagSet"
        pattern = schema(kind, "v1beta1")["properties"]["spec"]["properties"][name]["pattern"]
        validator = jsonschema_rs.validator_for({"pattern": pattern})
        assert validator.is_valid("1m30s")
        assert not any(map(validator.is_valid, ("", "5", "1d", "-1s", "1 m")))


@pytest.mark.parametrize("kind", list(CRDS))
def test_a_kind_is_named_as_the_code_names_it(kind: str) -> None:
    names = CRDS[kind]["spec"]["names"]
    assert names["plural"] == kinds.PLURALS[kind]
    assert names.get("categories") == (None if kind in PLAIN else ["flagstaff"])
    assert names["shortNames"]
    assert CRDS[kind]["metadata"]["name"] == f"{names['plural']}.{CRDS[kind]['spec']['group']}"


def test_every_version_of_a_configuration_keeps_the_fields_of_all() -> None:
    versions = CRDS[configuration.KIND]["spec"]["versions"]
    assert [each["name"] for each in versions if each["storage"]] == ["v1beta1"]
    whole = [each["schema"]["openAPIV3Schema"] for each in versions]
    assert all({*fields(each, each)} == {*fields(whole[0], whole[0])} for each in whole)
    assert all(
        each["additionalPrinterColumns"] == versions[0]["additionalPrinterColumns"] for each in versions
    )


@pytest.mark.parametrize(
    ("kind", "version"),
    [each for each in VERSIONS if MODELS[each[0]][1] is not None and each[0] not in PLAIN],
)
def test_every_status_starts_unobserved_and_has_the_same_conditions(kind: str, version: str) -> None:
    status = schema(kind, version)["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    first = schema("FlagSource", "v1beta1")["properties"]["status"]["properties"]["conditions"]
    assert status["properties"]["conditions"] == first


# -- what users are asked to apply ---------------------------------------------------------------------------


BLOCK: Final = re.compile(r"^( *)```yaml\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


def manifests() -> Iterator[Any]:
    """Every document of our kinds in examples/ and in the YAML of docs/."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted((ROOT / "examples").rglob("*.y*ml"))]
    for path in sorted((ROOT / "docs").rglob("*.md")):
        blocks = BLOCK.findall(path.read_text(encoding="utf-8"))
        texts += [(path, dedent(block)) for _, block in blocks if "apiVersion" in block]
    for path, text in texts:
        for number, document in enumerate(yaml.load_all(text, yaml.CSafeLoader)):
            if isinstance(document, dict) and document.get("kind") in MODELS:
                name = f"{path.relative_to(ROOT)}#{number}"
                yield pytest.param(document, id=name)


def plain(part: Any) -> Any:
    """A structural schema as JSON Schema: what is not described is no field, null where it may be."""
    if isinstance(part, list):
        return [plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: plain(each) for name, each in part.items() if not name.startswith("x-")}
    if found.pop("nullable", False) is True:
        found["type"] = [found["type"], "null"]
    closed = "properties" in found and not part.get("x-kubernetes-preserve-unknown-fields")
    return {**found, "additionalProperties": False} if closed else found


@pytest.mark.parametrize("document", list(manifests()))
def test_an_example_is_taken_and_read(document: Any) -> None:
    kind, version = document["kind"], document["apiVersion"].partition("/")[2]
    jsonschema_rs.validate(plain(schema(kind, version)), document)
    read(MODELS[kind][0], document["spec"])


def test_there_are_examples() -> None:
    assert len(list(manifests())) >= 2
