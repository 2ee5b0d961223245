"""The JSON Schemas that `flagstaff schema` prints, and that the folder schemas/ holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from controller.api.flagset_status import HistoryEntry
from controller.api.published.model_schema import documentation
from controller.cli.actions.reconcile_stages import Stage
from controller.cli.authoring.flag_changes import FlagChanges
from controller.cli.installation.cluster_checks import CheckResult
from controller.cli.objects.flag_trace import FlagTrace
from controller.cli.objects.kind_words import SHOWN
from controller.cli.objects.object_rows import FlagRow, ObjectRow
from controller.cli.objects.object_tree import TreeNode
from controller.cli.objects.stats import KindStats
from controller.cli.published.flag_schema import DRAFT, definition_schema
from controller.cli.rollouts.rollout_view import RolloutRecord
from controller.rollouts.planning.rollout_plan import RolloutPlan
from controller.validation.kind_schemas import schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.kinds import ResourceType

_LISTS: Final = {
    "get": ObjectRow,
    "get-flags": FlagRow,
    "history": HistoryEntry,
    "tree": TreeNode,
    "trace": FlagTrace,
    "stats": KindStats,
    "check": CheckResult,
    "rollout-plan": RolloutPlan,
}
_SINGLE: Final = {"reconcile": Stage, "diff": FlagChanges, "rollout-status": RolloutRecord}
"""Verbs that print one object, or one a line."""
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_ANY_METADATA: Final = {"type": "object", "properties": {"name": {"type": "string"}}}


def json_schemas() -> dict[str, dict[str, Any]]:
    """The schemas by name: definitions, layer, kinds, the kinds' own names in lower case, output-VERB."""
    kinds = {type_.kind.lower(): kind_schema(type_) for type_ in SHOWN}
    outputs = {f"output-{verb}": _output(list[record], [record]) for verb, record in _LISTS.items()}  # type: ignore[valid-type] # known at run time alone
    outputs |= {f"output-{verb}": _output(record, [record]) for verb, record in _SINGLE.items()}
    return {
        "definitions": definition_schema(layer=False),
        "layer": definition_schema(layer=True),
        "kinds": _any_kind(kinds),
        **kinds,
        **outputs,
    }


def kind_schema(type_: ResourceType) -> dict[str, Any]:
    """The schema of a manifest, as its CustomResourceDefinition has it, with unknown fields refused."""
    versions = schemas(type_)
    whole = _translate(versions[type_.version])
    properties = {name: field for name, field in whole["properties"].items() if name != "status"}
    properties["apiVersion"] = {"enum": [f"{type_.group}/{version}" for version in versions]}
    properties["kind"] = {"const": type_.kind}
    properties["metadata"] = _ANY_METADATA
    required = ["apiVersion", "kind", *whole.get("required", ())]
    return {
        "$schema": DRAFT,
        "title": type_.kind,
        "description": whole.get("description", ""),
        "type": "object",
        "required": list(dict.fromkeys(required)),
        "properties": {**properties, "status": {}},
        "additionalProperties": False,
    }


def _translate(schema: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema of a structural schema."""
    translated = {
        key: value for key, value in schema.items() if not key.startswith("x-") and key != "nullable"
    }
    if "properties" in schema:
        translated["properties"] = {name: _translate(field) for name, field in schema["properties"].items()}
        if not schema.get(_OPEN):
            translated["additionalProperties"] = False
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            translated[inner] = _translate(schema[inner])
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        translated["type"] = [schema["type"], "null"]
    return translated


def _any_kind(kinds: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A schema of any manifest, which judges those of our kinds."""
    bodies = {
        name: {key: part for key, part in schema.items() if key != "$schema"}
        for name, schema in kinds.items()
    }
    judged = [
        {
            "if": {"required": ["kind"], "properties": {"kind": {"const": body["title"]}}},
            "then": {"$ref": f"#/definitions/{name}"},
        }
        for name, body in bodies.items()
    ]
    return {
        "$schema": DRAFT,
        "title": "Manifests of Flagstaff's kinds; others are accepted",
        "type": "object",
        "allOf": judged,
        "definitions": bodies,
    }


def _output(shape: Any, records: list[type[Any]]) -> dict[str, Any]:
    """The schema of what a verb prints as JSON, with the docstrings of its fields."""
    schema = TypeAdapter(shape).json_schema(by_alias=True, mode="serialization")
    described = {record.__name__: documentation(record) for record in records}
    for name, definition in {**schema.get("$defs", {}), str(schema.get("title")): schema}.items():
        for field, text in described.get(name, {}).items():
            words = field.split("_")
            alias = words[0] + "".join(word.capitalize() for word in words[1:])
            if alias in definition.get("properties", {}):
                definition["properties"][alias]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
