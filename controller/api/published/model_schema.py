"""The structural schema of a model: what pydantic says of its fields, as Kubernetes wants it."""

from __future__ import annotations

import ast
import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

from controller.api.objects.rules import RuledModel
from controller.api.objects.schema_words import OPEN, RULES

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

    from controller.api.objects.fields import Model

_FIRST: Final = ("description", "type", "required", "default", "enum")
"""Keys in the order in which people read them; properties come last."""


def structural_schema(model: type[Model], description: str, *, asked: bool) -> dict[str, Any]:
    """Return the schema of a spec, which has the defaults and rules of the model, or of a status."""
    whole = TypeAdapter(model).json_schema(by_alias=True, schema_generator=_Documented)
    schema = _translate(whole, whole.get("$defs", {}), asked=asked)
    return {"description": description, **{key: part for key, part in schema.items() if key != "description"}}


class _Documented(GenerateJsonSchema):
    """pydantic's generator, with the docstring below each field and the rules of each model."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        model = schema["cls"]
        described = self._add_description(model, super().model_schema(schema))
        if issubclass(model, RuledModel) and model.RULES:
            described[RULES] = [rule.schema for rule in model.RULES]
        return described

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return self._add_description(schema["cls"], super().dataclass_schema(schema))

    @staticmethod
    def _add_description(documented: type[Any], schema: JsonSchemaValue) -> JsonSchemaValue:
        schema.pop("description", None)
        fields = getattr(documented, "model_fields", {})
        for name, text in documentation(documented).items():
            alias = (name in fields and fields[name].alias) or to_camel(name)
            if alias in schema.get("properties", {}):
                schema["properties"][alias]["description"] = text
        return schema


def documentation(cls: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, its bases' among them, on one line."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] not in {"builtins", "pydantic", "typing"}:
            texts |= _documented_fields(base.__module__).get(base.__name__, {})
    return texts


@lru_cache(maxsize=64)
def _documented_fields(module: str) -> dict[str, dict[str, str]]:
    source = inspect.getsource(__import__(module, fromlist=["_"]))
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: {
            field.target.id: " ".join(text.value.value.split())
            for field, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in classes
    }


def _translate(part: dict[str, Any], defs: dict[str, Any], *, asked: bool) -> dict[str, Any]:
    part = _without_references(part, defs)
    schema = {
        key: part[key] for key in part if key not in {"title", "$defs", "properties", "default", "const"}
    }
    if "const" in part:
        schema["enum"] = [part["const"]]
    default = schema.pop("x-default", None if "properties" in part else part.get("default"))
    if default not in (None, [], "") and asked:
        schema["default"] = _default_as_written(default, schema)
    if not asked:
        schema.pop(RULES, None)
    # Kubernetes has no word for what a key must be.
    schema.pop("propertyNames", None)
    named = schema.pop("patternProperties", None)
    if named is not None:
        (schema["additionalProperties"],) = named.values()
    if schema.get("additionalProperties") is True or not ({"type", OPEN} & schema.keys()):
        schema.pop("additionalProperties", None)
        schema[OPEN] = True
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            schema[inner] = _translate(schema[inner], defs, asked=asked)
    if "properties" in part:
        schema["properties"] = {
            name: _translate(field, defs, asked=asked) for name, field in part["properties"].items()
        }
    ordered = [*(key for key in _FIRST if key in schema), *(key for key in schema if key not in _FIRST)]
    last = [key for key in ("items", "additionalProperties", "properties") if key in schema]
    return {key: schema[key] for key in (*(key for key in ordered if key not in last), *last)}


def _without_references(part: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Return a part without references, and without the null of a field that need not be given."""
    if "$ref" in part:
        target = _without_references(defs[part["$ref"].rpartition("/")[2]], defs)
        # An enum's own words are about all of its uses.
        target = {key: text for key, text in target.items() if key != "description"}
        return {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    options = [option for option in part.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        own = {key: value for key, value in part.items() if key != "anyOf"}
        return {**_without_references(options[0], defs), **own}
    return part


def _default_as_written(default: Any, schema: dict[str, Any]) -> Any:
    """Return a default as users write it: seconds as a duration."""
    if schema.get("type") != "string" or isinstance(default, str):
        return default
    minutes, seconds = divmod(default, 60)
    return f"{minutes:g}m" if minutes > 1 and not seconds else f"{default:g}s"
